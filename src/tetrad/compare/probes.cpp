#include "tetrad/compare/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tetrad/core/failpoint.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/report/run_metrics.h"
#include "tetrad/train/snapshot.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// One microbatch, the same for all arms.
struct Microbatch {
  std::int64_t sequences = 0;
  std::vector<std::int32_t> inputs, targets;

  explicit Microbatch(const Config& config)
      : sequences(config.train.microbatch > 0 ? config.train.microbatch : config.train.batch),
        inputs(static_cast<std::size_t>(sequences * config.train.sequence)),
        targets(inputs.size()) {
    open_dataset(config).next(sequences, inputs, targets);
  }
};

/// By parameter.
using Gradients = std::vector<std::vector<float>>;

Gradients gradients_at(const fs::path& checkpoint, const Config& config, const Microbatch& batch,
                       Backend& backend, std::vector<std::string>& matrices) {
  Decoder decoder(backend, config.model, batch.sequences, config.train.sequence,
                  storage_type(config.precision), recompute_from_name(config.train.recompute));
  load_weights(checkpoint, decoder);
  const Recipe recipe(config.precision, config.model.blocks());
  Pass pass;
  pass.recipe = &recipe;
  pass.seed = config.train.seed;
  std::vector<float> losses(batch.inputs.size());
  decoder.clear_gradients();
  decoder.train(pass, batch.inputs, batch.targets, 1.0f / static_cast<float>(losses.size()), losses);
  Gradients gradients;
  matrices.clear();
  for (const auto& parameter : decoder.parameters()) {
    std::vector<float>& values = gradients.emplace_back(static_cast<std::size_t>(parameter->gradient.size()));
    backend.download(parameter->gradient.bytes(), std::as_writable_bytes(std::span(values)));
    matrices.push_back(parameter->decay ? parameter->name : "");
  }
  return gradients;
}

struct Products {
  double ab = 0, aa = 0, bb = 0;

  void add(const std::vector<float>& a, const std::vector<float>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      ab += static_cast<double>(a[i]) * b[i];
      aa += static_cast<double>(a[i]) * a[i];
      bb += static_cast<double>(b[i]) * b[i];
    }
  }
  GradientDistance distance(std::string name) const {
    return {std::move(name), ab / std::sqrt(aa * bb), std::sqrt(bb / aa)};
  }
};

/// The beginning of a run: a checkpoint in the middle and one at the end.
constexpr std::int64_t kProbeSteps = 6;
constexpr std::int64_t kProbeCheckpoint = 3;
constexpr std::int64_t kBadStep = 4;

bool equal_files(const fs::path& a, const fs::path& b) {
  const MappedFile first(a);
  const MappedFile second(b);
  return std::ranges::equal(first.bytes(), second.bytes());
}

}  // namespace

std::vector<std::vector<GradientDistance>> compare_gradients(const fs::path& checkpoint,
                                                             std::span<const Config> arms, Backend& backend) {
  const Microbatch batch(arms[0]);
  std::vector<std::string> matrices;
  const Gradients reference = gradients_at(checkpoint, arms[0], batch, backend, matrices);
  std::vector<std::vector<GradientDistance>> result;
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    const Gradients gradients =
        arm == 0 ? reference : gradients_at(checkpoint, arms[arm], batch, backend, matrices);
    Products all;
    std::vector<GradientDistance> distances(1);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Products one;
      one.add(reference[i], gradients[i]);
      all.add(reference[i], gradients[i]);
      if (!matrices[i].empty()) distances.push_back(one.distance(matrices[i]));
    }
    distances[0] = all.distance("");
    result.push_back(std::move(distances));
  }
  return result;
}

std::optional<Recovery> test_recovery(Config config, const fs::path& folder, const RunContext& context) {
  config.train.steps = kProbeSteps;
  config.train.tokens = 0;
  config.train.checkpoint = {.every = kProbeCheckpoint, .keep = 3};
  config.train.eval.every = 0;
  config.train.health.policy = "skip";
  fs::remove_all(folder);
  const fs::path straight = folder / "straight";
  const fs::path disturbed = folder / "disturbed";
  const fs::path last = fmt::format("checkpoints/step-{}", kProbeSteps);
  Recovery result;

  if (train_in(straight, config, {}, context) == Ending::stopped_by_signal) return std::nullopt;
  fs::rename(straight / last, folder / "expected");
  if (train_in(straight, config, {}, context) == Ending::stopped_by_signal) return std::nullopt;
  result.resume_ok = true;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    result.resume_ok &= equal_files(folder / "expected" / file, straight / last / file);
  result.resume = result.resume_ok ? "equal to the bit" : "DIFFERENT from the run without an interruption";

  set_failpoints(fmt::format("train.non_finite=eio@{}", kBadStep));
  const Ending ending = train_in(disturbed, config, {}, context);
  set_failpoints("");
  if (ending == Ending::stopped_by_signal) return std::nullopt;
  const RunMetrics run = read_run(disturbed);
  const auto skipped = std::ranges::count_if(run.train, &TrainPoint::skipped);
  const bool went_on = ending == Ending::finished && std::isfinite(run.train.back().loss);
  result.nan_ok = went_on && skipped == 1;
  result.nan = went_on ? fmt::format("skipped {} step{}, then went on", skipped, skipped == 1 ? "" : "s")
                       : "the run did not go on";
  fs::remove_all(folder);
  return result;
}

}  // namespace tetrad
