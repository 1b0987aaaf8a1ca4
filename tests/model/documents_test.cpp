// SPDX-License-Identifier: Apache-2.0
// Documents packed into sequences and masked, against each document alone: logits and gradients of both
// families, in f32, and in BF16 with the shapes that backends have their fast forms for.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/backends.h"
#include "support/gradient.h"
#include "support/matrices.h"
#include "support/models.h"
#include "tetrad/core/error.h"
#include "tetrad/model/decoder.h"

namespace tetrad::testing::documents_test {
namespace {

using Ids = std::vector<std::int32_t>;
using Lengths = std::vector<std::vector<std::int64_t>>;  //!< of the documents of each sequence

/// Heads and states as real models have them.
ModelConfig with_wide_heads(ModelConfig config) {
  config.vocab = 16;
  config.hidden = 128;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 64;
  config.mamba = {.heads = 16, .head_dim = 64, .groups = 2, .state = 64, .conv = 4, .chunk = 128};
  return config;
}

struct Case {
  ModelConfig config;
  Lengths lengths;

  std::int64_t sequence() const {
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths[0]) sum += length;
    return sum;
  }
  std::int64_t tokens() const { return std::ssize(lengths) * sequence(); }
  Ids ids(unsigned seed) const {
    std::mt19937 generator(seed);
    std::uniform_int_distribution<std::int32_t> pick(0, static_cast<std::int32_t>(config.vocab) - 1);
    Ids result(static_cast<std::size_t>(tokens()));
    for (std::int32_t& id : result) id = pick(generator);
    return result;
  }
  Ids document_starts() const {
    Ids starts;
    for (const auto& documents : lengths) {
      std::int32_t start = 0;
      for (const std::int64_t length : documents) {
        starts.insert(starts.end(), static_cast<std::size_t>(length), start);
        start += static_cast<std::int32_t>(length);
      }
    }
    return starts;
  }
};

struct Outcome {
  /// By id, the logarithms of the probabilities of that id as the next token: logits but for a constant of
  /// each token.
  std::vector<std::vector<float>> log_probabilities;
  std::map<std::string, std::vector<double>> gradients;

  void append(const Outcome& part) {
    log_probabilities.resize(part.log_probabilities.size());
    for (std::size_t id = 0; id < log_probabilities.size(); ++id)
      log_probabilities[id].insert(log_probabilities[id].end(), part.log_probabilities[id].begin(),
                                   part.log_probabilities[id].end());
    for (const auto& [name, gradient] : part.gradients) {
      std::vector<double>& sum = gradients[name];
      sum.resize(gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) sum[i] += gradient[i];
    }
  }
};

/// The same weights for every batch and sequence.
class Model {
 public:
  Model(Backend& device, const ModelConfig& config, std::int64_t batch, std::int64_t sequence, DType storage,
        Recompute recompute = Recompute::none)
      : decoder_(device, config, batch, sequence, storage, MemoryLevers{recompute}),
        recipe_(plain_precision(), config.blocks()) {
    decoder_.initialize(7);
    unsigned seed = 100;
    for (const auto& parameter : decoder_.parameters()) {
      // Time steps of a thousandth would hide the scan.
      const float shift = parameter->name.ends_with("dt_bias") ? 3.0f : 0.0f;
      const std::vector<double> noise = random_values(parameter->value.size(), seed++, 0.1);
      for (std::size_t i = 0; i < noise.size(); ++i)
        parameter->value.f32()[i] += static_cast<float>(noise[i]) + shift;
    }
    decoder_.weights_changed();
  }

  Outcome run(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
              std::span<const std::int32_t> document_starts) {
    Outcome outcome;
    std::vector<float> losses(tokens.size());
    for (std::int32_t id = 0; id < decoder_.config().vocab; ++id) {
      Pass pass = make_pass();
      decoder_.evaluate(pass, tokens, Ids(tokens.size(), id), losses, document_starts);
      for (float& loss : losses) loss = -loss;
      outcome.log_probabilities.push_back(losses);
    }
    Pass pass = make_pass();
    decoder_.clear_gradients();
    decoder_.train(pass, tokens, targets, 1, losses, document_starts);
    for (const auto& parameter : decoder_.parameters()) {
      const float* data = parameter->gradient.f32();
      outcome.gradients[parameter->name] = {data, data + parameter->gradient.size()};
    }
    return outcome;
  }

  Decoder& decoder() { return decoder_; }
  Pass make_pass() const {
    Pass pass;
    pass.recipe = &recipe_;
    return pass;
  }

 private:
  static PrecisionConfig plain_precision() {
    PrecisionConfig precision;
    precision.recipe = "bf16";
    return precision;
  }

  Decoder decoder_;
  Recipe recipe_;
};

Outcome run_packed(Backend& device, const Case& c, DType storage, bool masked,
                   Recompute recompute = Recompute::none) {
  Model model(device, c.config, std::ssize(c.lengths), c.sequence(), storage, recompute);
  return model.run(c.ids(1), c.ids(2), masked ? c.document_starts() : Ids{});
}

Outcome run_alone(Backend& device, const Case& c, DType storage) {
  const Ids tokens = c.ids(1);
  const Ids targets = c.ids(2);
  Outcome all;
  std::size_t first = 0;
  for (const auto& documents : c.lengths)
    for (const std::int64_t length : documents) {
      Model model(device, c.config, 1, length, storage);
      const auto part = [&](const Ids& ids) {
        return std::span(ids).subspan(first, static_cast<std::size_t>(length));
      };
      all.append(model.run(part(tokens), part(targets), {}));
      first += static_cast<std::size_t>(length);
    }
  return all;
}

/// |b - a| / |a|, over everything.
double relative_distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t id = 0; id < a.size(); ++id)
    for (std::size_t t = 0; t < a[id].size(); ++t) {
      difference += std::pow(static_cast<double>(b[id][t]) - static_cast<double>(a[id][t]), 2);
      size += std::pow(static_cast<double>(a[id][t]), 2);
    }
  return std::sqrt(difference / size);
}
double relative_distance(const std::map<std::string, std::vector<double>>& a,
                         const std::map<std::string, std::vector<double>>& b) {
  double difference = 0;
  double size = 0;
  for (const auto& [name, gradient] : a)
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      difference += std::pow(b.at(name)[i] - gradient[i], 2);
      size += std::pow(gradient[i], 2);
    }
  return std::sqrt(difference / size);
}

class MaskedDocuments : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  Backend& device() { return backend(std::get<0>(GetParam())); }
  ModelConfig config() {
    const std::string& family = std::get<1>(GetParam());
    return family == "llama" ? tiny_llama() : family == "qwen3" ? tiny_qwen3() : tiny_hybrid();
  }
  /// Documents of one token and shorter than the convolution, chunks of 8 tokens.
  Case small_case() { return {config(), {{5, 1, 11, 7}, {2, 22}}}; }
};

TEST_P(MaskedDocuments, AreTheDocumentsAlone) {
  const Case c = small_case();
  const Outcome alone = run_alone(device(), c, DType::f32);
  const Outcome packed = run_packed(device(), c, DType::f32, true);
  for (std::size_t id = 0; id < alone.log_probabilities.size(); ++id)
    EXPECT_LT(relative_error(packed.log_probabilities[id], alone.log_probabilities[id]), 1e-5) << id;
  for (const auto& [name, gradient] : alone.gradients)
    EXPECT_LT(relative_error(packed.gradients.at(name), gradient), 5e-5)
        << name << ": f32 sums in another order";

  const Outcome unmasked = run_packed(device(), c, DType::f32, false);
  EXPECT_GT(relative_distance(alone.log_probabilities, unmasked.log_probabilities), 1e-2);
  EXPECT_GT(relative_distance(alone.gradients, unmasked.gradients), 1e-1);
}

TEST_P(MaskedDocuments, AreTheDocumentsAloneInBf16) {
  const Case c{with_wide_heads(config()), {{3, 61, 1, 66, 69}, {130, 2, 68}}};
  const Outcome exact = run_alone(device(), c, DType::f32);
  const Outcome alone = run_alone(device(), c, DType::bf16);
  const Outcome packed = run_packed(device(), c, DType::bf16, true);
  // What the arithmetic leaves open is how far the documents alone are from f32. Packed ones are rounded in
  // another order, but no further off.
  const double open = relative_distance(exact.log_probabilities, alone.log_probabilities);
  const double open_gradients = relative_distance(exact.gradients, alone.gradients);
  EXPECT_LT(relative_distance(exact.log_probabilities, packed.log_probabilities), 1.5 * open);
  EXPECT_LT(relative_distance(exact.gradients, packed.gradients), 1.5 * open_gradients);

  const Outcome unmasked = run_packed(device(), c, DType::bf16, false);
  EXPECT_GT(relative_distance(exact.log_probabilities, unmasked.log_probabilities), 3 * open);
  EXPECT_GT(relative_distance(exact.gradients, unmasked.gradients), 3 * open_gradients);
}

TEST_P(MaskedDocuments, AreTheSameWhatIsComputedAgain) {
  const Case c = small_case();
  const Outcome kept = run_packed(device(), c, DType::bf16, true);
  for (const Recompute recompute : {Recompute::cheap, Recompute::ffn, Recompute::full}) {
    const Outcome again = run_packed(device(), c, DType::bf16, true, recompute);
    EXPECT_EQ(again.gradients, kept.gradients);
  }
}

TEST_P(MaskedDocuments, DoNotStayForTheNextMicrobatch) {
  const Case c = small_case();
  Model model(device(), c.config, 2, c.sequence(), DType::f32);
  const Outcome before = model.run(c.ids(1), c.ids(2), {});
  model.run(c.ids(1), c.ids(2), c.document_starts());
  const Outcome after = model.run(c.ids(1), c.ids(2), {});
  EXPECT_EQ(after.log_probabilities, before.log_probabilities);
  EXPECT_EQ(after.gradients, before.gradients);
}

TEST_P(MaskedDocuments, RefusesStartsThatAreNone) {
  const Case c = small_case();
  Model model(device(), c.config, 2, c.sequence(), DType::f32);
  const Ids tokens = c.ids(1);
  std::vector<float> losses(tokens.size());
  const auto refuses = [&](const Ids& starts) {
    Pass pass = model.make_pass();
    EXPECT_THROW(model.decoder().evaluate(pass, tokens, tokens, losses, starts), Error);
  };
  const auto changed = [&](std::size_t place, std::int32_t start) {
    Ids starts = c.document_starts();
    starts[place] = start;
    return starts;
  };
  refuses(Ids(tokens.size() - 1));
  refuses(changed(0, 1));    // begins after itself
  refuses(changed(10, 7));   // neither goes on nor begins
  refuses(changed(24, 17));  // of the sequence before
  refuses(changed(30, -1));
}

std::string name_of_test(const ::testing::TestParamInfo<std::tuple<std::string, std::string>>& test) {
  return std::get<0>(test.param) + "_" + std::get<1>(test.param);
}

INSTANTIATE_TEST_SUITE_P(All, MaskedDocuments,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::Values("llama", "qwen3", "hybrid")),
                         name_of_test);

}  // namespace
}  // namespace tetrad::testing::documents_test
