// SPDX-License-Identifier: Apache-2.0
// Several contexts in one process share nothing: used from two threads at once, each gives the bits that it
// gives alone.

#include "support/contexts.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "support/backends.h"
#include "tetrad/model/decoder.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad::testing::contexts_test {
namespace {

constexpr QuantizeOptions stochastic_options(unsigned seed) {
  return {.random = {.seed = seed, .step = 3, .microbatch = 1, .tensor = 5}, .telemetry = Telemetry::none};
}

Bytes quantize_and_multiply(Backend& backend, unsigned seed) {
  const Tensor x = random_bf16(backend, 256, 512, seed);
  const Tensor w = random_bf16(backend, 384, 512, seed + 1);
  QuantizedTensor a;
  QuantizedTensor b;
  backend.quantize(x.view(), {.rounding = Rounding::stochastic}, stochastic_options(seed), a);
  backend.quantize(w.view(), {.block = {16, 16}}, stochastic_options(seed), b);
  Tensor out = backend.make_tensor(DType::f32, 256, 384);
  backend.gemm(a, b, out.view());
  Bytes results;
  append(backend, a, results);
  append(backend, b, results);
  append(backend, out.bytes(), results);
  return results;
}

Bytes attend(Backend& backend, unsigned seed, std::int64_t head_dim) {
  const AttentionShape shape{2, 256, 4, 2, head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim))};
  const std::int64_t tokens = shape.batch * shape.sequence;
  const auto input = [&](std::int64_t heads, unsigned which) {
    return random_bf16(backend, tokens, heads * head_dim, seed + which);
  };
  const auto output = [&](std::int64_t heads) {
    return backend.make_tensor(DType::bf16, tokens, heads * head_dim);
  };
  const Tensor q = input(shape.heads, 0);
  const Tensor k = input(shape.kv_heads, 1);
  const Tensor v = input(shape.kv_heads, 2);
  const Tensor dout = input(shape.heads, 3);
  Tensor out = output(shape.heads);
  Tensor dq = output(shape.heads);
  Tensor dk = output(shape.kv_heads);
  Tensor dv = output(shape.kv_heads);
  Tensor log_sum_exp = backend.make_tensor(DType::f32, shape.batch * shape.heads, shape.sequence);
  backend.attention(AttentionForward{shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.f32()});
  backend.attention(AttentionBackward{shape, q.view(), k.view(), v.view(), out.const_view(),
                                      log_sum_exp.f32(), dout.view(), dq.view(), dk.view(), dv.view()});
  Bytes results;
  for (const Tensor* tensor : {&out, &dq, &dk, &dv}) append(backend, tensor->bytes(), results);
  return results;
}

/// Two steps of a tiny model.
Bytes train(Backend& backend, const std::string& pattern, unsigned seed) {
  constexpr std::int64_t kBatch = 2;
  constexpr std::int64_t kSequence = 128;
  constexpr std::int32_t kVocab = 512;
  ModelConfig config;
  config.pattern = pattern;
  config.hidden = 256;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.ffn = 512;
  config.vocab = kVocab;
  config.mamba = {.heads = 16, .head_dim = 64, .groups = 2, .state = 64, .conv = 4, .chunk = 64};
  PrecisionConfig precision;
  precision.recipe = "nvfp4";
  const Recipe recipe(precision, config.blocks());
  // With copies to and from the host, which are a context's own too.
  Decoder decoder(backend, config, kBatch, kSequence, DType::bf16, {.residual_on_host = true});
  const OptimConfig optim;
  AdamWOptimizer optimizer(backend, decoder.parameters(), optim);
  decoder.initialize(seed);
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> pick(0, kVocab - 1);
  const auto tokens = [&] {
    std::vector<std::int32_t> result(kBatch * kSequence);
    for (std::int32_t& token : result) token = pick(generator);
    return result;
  };
  std::vector<float> losses(kBatch * kSequence);
  for (std::uint32_t step = 0; step < 2; ++step) {
    Pass pass;
    pass.recipe = &recipe;
    pass.seed = seed;
    pass.step = step;
    decoder.clear_gradients();
    decoder.train(pass, tokens(), tokens(), 1.0f / (kBatch * kSequence), losses);
    optimizer.step(step + 1, 1e-3, optimizer.inspect().norm);
  }
  const std::span<const std::byte> lost = std::as_bytes(std::span(losses));
  Bytes results(lost.begin(), lost.end());
  for (const auto& parameter : decoder.parameters()) append(backend, parameter->value.bytes(), results);
  return results;
}

class Contexts : public WithEmptyCache, public ::testing::WithParamInterface<std::string> {
 protected:
  using Work = std::function<Bytes(Backend&, unsigned seed)>;

  static std::unique_ptr<Backend> make_context() {
    return GetParam() == "cpu" ? make_cpu_backend({.threads = 2, .instruction_set = {}})
                               : make_cuda_backend();
  }

  /// Runs `work` in two contexts one after the other, and in two at once.
  static void expect_same_bits_at_once(const Work& work) {
    constexpr int kRepeats = 3;
    Bytes alone[2];
    for (unsigned i = 0; i < 2; ++i) alone[i] = work(*make_context(), i + 1);
    ASSERT_FALSE(alone[0] == alone[1]) << "results do not depend on the seed: the test could not fail";
    bool equal[2] = {true, true};
    std::string errors[2];
    const auto run = [&](unsigned i) {
      try {
        const std::unique_ptr<Backend> backend = make_context();
        for (int repeat = 0; repeat < kRepeats; ++repeat)
          equal[i] = work(*backend, i + 1) == alone[i] && equal[i];
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    };
    std::thread first(run, 0u);
    std::thread second(run, 1u);
    first.join();
    second.join();
    for (unsigned i = 0; i < 2; ++i) {
      EXPECT_EQ(errors[i], "");
      EXPECT_TRUE(equal[i]) << "thread " << i;
    }
  }
};

TEST_P(Contexts, QuantizeAndMultiplySideBySide) { expect_same_bits_at_once(quantize_and_multiply); }

TEST_P(Contexts, MultiplyLargeMatricesSideBySide) { expect_same_bits_at_once(multiply_large); }

TEST_P(Contexts, AttendSideBySide) {
  for (const std::int64_t head_dim : {64, 128, 80})  // the last is for the kernels of any shape
    expect_same_bits_at_once(
        [&](Backend& backend, unsigned seed) { return attend(backend, seed, head_dim); });
}

TEST_P(Contexts, AttentionOfDifferentShapesSideBySide) {
  // On a GPU, one kernel with more and with less shared memory, which is an attribute that contexts share.
  expect_same_bits_at_once(
      [](Backend& backend, unsigned seed) { return attend(backend, seed, seed == 1 ? 80 : 256); });
}

TEST_P(Contexts, TrainSideBySide) {
  for (const std::string pattern : {"*-*-", "M-*-"})
    expect_same_bits_at_once([&](Backend& backend, unsigned seed) { return train(backend, pattern, seed); });
}

INSTANTIATE_TEST_SUITE_P(All, Contexts, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::contexts_test
