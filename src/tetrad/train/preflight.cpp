// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "tetrad/config/scalar.h"
#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/parameter_table.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/train/run_saver.h"
#include "tetrad/train/schedule.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// Text that is read more often than this teaches little that is new.
constexpr double kManyEpochs = 4;

std::vector<std::string> layer_names(const ModelConfig& model) {
  std::vector<std::string> names;
  for (std::size_t block = 0; block < model.pattern.size(); ++block)
    for (const LinearShape& linear : linear_shapes(model, model.pattern[block]))
      names.push_back(fmt::format("blocks.{}.{}", block, linear.name));
  return names;
}

void check_patterns(std::string_view key, const std::vector<std::string>& patterns,
                    const std::vector<std::string>& layers) {
  for (const std::string& pattern : patterns)
    TETRAD_CHECK(
        std::ranges::any_of(layers, [&](const std::string& layer) { return matches(pattern, layer); }),
        "precision.high_precision.{}: no layer of the model is called {}{}: layers have names such as {} and "
        "{}, and * stands for anything",
        key, quoted_name(pattern),
        pattern.find('*') == std::string::npos ? config::nearest_hint(pattern, layers) : "", layers.front(),
        layers.back());
}

/// What a product of a layer sums over, but for wgrad, where it is the tokens.
std::int64_t depth_of(Operand operand, const LinearShape& linear) {
  return gemm_of(operand) == "fprop" ? linear.in : linear.out;
}

/// Calls body(name of the layer, its shape, its precision) for every layer at every time of the run.
template <typename Body>
void for_each_precision(const Config& config, const Body& body) {
  const Recipe recipe(config.precision, config.model.blocks());
  std::vector<double> times = {0};
  for (const PrecisionSwitch& change : config.precision.schedule) times.push_back(change.at);
  for (const double progress : times)
    for (std::int64_t block = 0; block < config.model.blocks(); ++block)
      for (const LinearShape& linear :
           linear_shapes(config.model, config.model.pattern[static_cast<std::size_t>(block)])) {
        const std::string name = fmt::format("blocks.{}.{}", block, linear.name);
        body(name, linear, recipe.at({name, block, linear.out}, progress));
      }
}

double gigabytes(double bytes) { return bytes / 1e9; }

}  // namespace

void check_kept_layers(const Config& config) {
  const HighPrecisionConfig& kept = config.precision.high_precision;
  const std::vector<std::string> layers = layer_names(config.model);
  check_patterns("match", kept.match, layers);
  check_patterns("fp8", kept.fp8, layers);
  TETRAD_CHECK(
      kept.first.value_or(0) <= config.model.blocks() - kept.last.value_or(0),
      "precision.high_precision keeps the first {} and the last {} blocks in BF16, but the model has "
      "only {}: keep fewer (recipe: bf16 keeps all of them)",
      kept.first.value_or(0), kept.last.value_or(0), config.model.blocks());
}

void check_transforms(const Config& config) {
  constexpr std::array kAlongFeatures = {Operand::fprop_x, Operand::dgrad_dy};
  const auto size_of = [](const LinearPrecision& precision, Operand operand) -> std::int64_t {
    return precision[operand] ? precision[operand]->hadamard : 0;
  };
  std::int64_t fitting = kMaxHadamard;
  for_each_precision(config, [&](const auto&, const LinearShape& linear, const LinearPrecision& precision) {
    for (const Operand operand : kAlongFeatures)
      if (size_of(precision, operand) > 0) fitting = std::gcd(fitting, depth_of(operand, linear));
  });
  for_each_precision(config, [&](const std::string& name, const LinearShape& linear,
                                 const LinearPrecision& precision) {
    for (const Operand operand : kAlongFeatures) {
      const std::int64_t size = size_of(precision, operand);
      const std::int64_t depth = depth_of(operand, linear);
      TETRAD_CHECK(size == 0 || depth % size == 0,
                   "precision: {} has {} {}, which {} transforms in groups of {}: use precision.rht.size={}, "
                   "which fits all layers, or keep this one in BF16 (precision.high_precision.match)",
                   name, depth, gemm_of(operand) == "fprop" ? "inputs" : "outputs", gemm_of(operand), size,
                   fitting);
    }
  });
}

std::vector<SourceUse> source_uses(const Dataset& dataset) {
  std::vector<SourceUse> uses;
  for (std::size_t i = 0; i < dataset.source_names().size(); ++i) {
    const std::string& name = dataset.source_names()[i];
    const TokenSequences& source = dataset.source(name);
    const TokenSequences* heldout = dataset.heldout(name);
    SourceUse use{
        name,
        source.file().size(),
        dataset.mixture().planned_samples(static_cast<int>(i)) / static_cast<double>(source.count()),
        {}};
    if (heldout != nullptr) use.heldout_tokens = heldout->file().size();
    uses.push_back(std::move(use));
  }
  return uses;
}

std::vector<std::string> data_warnings(const Dataset& dataset) {
  std::vector<std::string> warnings;
  for (const SourceUse& use : source_uses(dataset)) {
    if (use.epochs == 0)
      warnings.push_back(fmt::format(
          "data.sources.{} is in no phase: nothing is trained on it (add it to data.phases, or leave it out)",
          use.name));
    if (use.epochs > kManyEpochs)
      warnings.push_back(
          fmt::format("data.sources.{} has {} tokens, and the run reads them {:.1f} times: beyond about {:g} "
                      "times little "
                      "is learned (train shorter, or on more text)",
                      use.name, use.tokens, use.epochs, kManyEpochs));
  }
  const auto& hashes = dataset.hashes();
  for (const std::string& name : dataset.source_names()) {
    const auto heldout = hashes.find(name + ".heldout");
    if (heldout == hashes.end()) continue;
    for (const std::string& other : dataset.source_names())
      if (hashes.at(other) == heldout->second)
        warnings.push_back(fmt::format(
            "data.sources.{}.heldout has the very tokens of data.sources.{}, which are trained on: its loss "
            "says nothing about new text",
            name, other));
  }
  return warnings;
}

CheckpointSpace checkpoint_space(const Config& config) {
  constexpr std::int64_t kWeight = 4;  // F32
  CheckpointSpace space;
  space.each = kWeight * parameter_count(config.model) +
               moment_bytes(parameter_sizes(config.model), moment_storage(config.optim));
  space.most = space.each * most_checkpoints(config.train);
  std::error_code error;
  fs::path folder = fs::absolute(config.run.out.empty() ? "." : config.run.out, error);
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  if (const fs::space_info info = fs::space(folder, error); !error)
    space.free = static_cast<std::int64_t>(info.available);
  return space;
}

std::vector<std::string> space_warnings(const CheckpointSpace& space) {
  if (!space.free || space.most <= *space.free) return {};
  return {
      fmt::format("checkpoints will take {:.1f} GB, and {:.1f} GB of the disk are free: choose another "
                  "--out, or a smaller train.checkpoint.keep",
                  gigabytes(static_cast<double>(space.most)), gigabytes(static_cast<double>(*space.free)))};
}

}  // namespace tetrad
