// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/probe_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "tetrad/core/error.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/parallel/agreement.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

std::vector<CheckResult> check_arm(const Trial& trial, const fs::path& folder, const ChecksConfig& checks,
                                   const RunContext& context) {
  LoadedModel model(folder / trial.folder, {.display = &context.display}, context.backend);
  return run_checks(model, heldout_files(trial.config), checks);
}

/// Checks were made, and with all the questions that are asked now.
bool has_checks(const ArmProbes& probes, const ChecksConfig& checks) {
  if (!probes.checks) return false;
  return std::ranges::all_of(checks.choices, [&](const Quiz& quiz) {
    return std::ranges::find(*probes.checks, quiz.name, &CheckResult::name) != probes.checks->end();
  });
}

fs::path probes_file(const fs::path& folder, const NamedOverrides& arm) {
  return folder / "runs" / arm.name / "probes.json";
}

/// The index of the trial whose weights the arm is probed with.
std::size_t find_probed(const Comparison& comparison, const fs::path& folder, std::size_t arm) {
  const std::optional<std::size_t> found = trial_with_checkpoint(comparison, folder, arm);
  TETRAD_CHECK(found.has_value(),
               "no run of {} has a checkpoint, which the probes need: leave out gradients, losses and checks "
               "(--probes recovery), or add a seed (--seeds)",
               comparison.plan.arms[arm].name);
  return *found;
}

/// The reference's weights, and how each arm would compute with them.
struct OnReference {
  OnReference(const Comparison& comparison, const fs::path& folder, const RunContext& context) {
    std::size_t reference = 0;  // the first of its pair
    on_first(context.ranks, [&] {
      reference = find_probed(comparison, folder, 0);
      held = find_checkpoint(folder / comparison.trials[reference].folder, &context.display);
    });
    reference = std::stoul(from_first(context.ranks, fmt::to_string(reference)));
    checkpoint = from_first(context.ranks, held.path().string());
    for (std::size_t i = 0; i < comparison.plan.arms.size(); ++i)
      configs.push_back(comparison.trials[reference + i].config);
  }

  OpenCheckpoint held;  //!< by the first rank
  fs::path checkpoint;
  std::vector<Config> configs;
};

}  // namespace

std::vector<ArmProbes> probes_so_far(const Comparison& comparison, const fs::path& folder) {
  std::vector<ArmProbes> probes;
  for (const NamedOverrides& arm : comparison.plan.arms)
    probes.push_back(read_probes(probes_file(folder, arm)));
  return probes;
}

bool run_probes(const Comparison& comparison, const fs::path& folder, const std::set<std::string>& wanted,
                const ChecksConfig& checks, const RunContext& context, std::vector<ArmProbes>& probes) {
  const std::vector<NamedOverrides>& arms = comparison.plan.arms;
  const auto keep = [&](std::size_t arm) {
    on_first(context.ranks, [&] { write_probes(probes_file(folder, arms[arm]), probes[arm]); });
  };
  const auto lack = [&](auto is_there) {
    return context.first_finds([&] { return !std::ranges::all_of(probes, is_there); });
  };
  if (wanted.contains("gradients") && lack([](const ArmProbes& arm) { return !arm.gradients.empty(); })) {
    context.display.say(fmt::format("gradients of all arms on the weights of {}", arms[0].name));
    const OnReference on(comparison, folder, context);
    auto gradients = compare_gradients(on.checkpoint, on.configs, context);
    for (std::size_t i = 0; i < arms.size(); ++i) {
      probes[i].gradients = std::move(gradients[i]);
      keep(i);
    }
  }
  if (wanted.contains("losses") && lack([](const ArmProbes& arm) { return arm.losses.has_value(); })) {
    context.display.say(fmt::format("losses of all arms on the weights of {}", arms[0].name));
    const OnReference on(comparison, folder, context);
    const std::vector<LossDistance> losses = compare_losses(on.checkpoint, on.configs, context);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      probes[i].losses = losses[i];
      keep(i);
    }
  }
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (wanted.contains("recovery") && context.first_finds([&] { return !probes[i].recovery; })) {
      context.display.say(arms[i].name + ": a bad step and an interruption");
      probes[i].recovery =
          test_recovery(comparison.trials[i].config, folder / "probes" / arms[i].name, context);
      if (!probes[i].recovery) return false;
      keep(i);
    }
    if (!wanted.contains("checks")) continue;
    on_first(context.ranks, [&] {
      if (has_checks(probes[i], checks)) return;
      context.display.say(arms[i].name + ": checks");
      probes[i].checks =
          check_arm(comparison.trials[find_probed(comparison, folder, i)], folder, checks, context);
    });
    keep(i);
  }
  on_first(context.ranks, [&] { fs::remove(folder / "probes"); });
  return true;
}

}  // namespace tetrad
