// SPDX-License-Identifier: Apache-2.0
#include "compare_definition.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "terminal.h"
#include "tetrad/compare/runner.h"
#include "tetrad/config/config.h"
#include "tetrad/config/parse.h"
#include "tetrad/core/error.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/train/resume.h"

namespace tetrad::app {
namespace {

namespace fs = std::filesystem;

/// The checkpoints that arms are to branch off from, and the configuration of their runs: these may differ in
/// their seeds alone.
struct Trunks {
  std::vector<GivenTrunk> given;
  std::string config_file;
};

Trunks open_trunks(const std::vector<std::string>& paths) {
  Trunks trunks;
  Config first;
  for (const std::string& path : paths) {
    const OpenCheckpoint open = find_checkpoint(path, &terminal());
    const std::vector<std::string> files = {(open.path() / "config.yaml").string()};
    Config config = load_config(files, {});
    trunks.given.push_back({branch_point(open.path()), config.train.seed});
    if (trunks.config_file.empty()) {
      trunks.config_file = files[0];
      first = config;
    }
    config.train.seed = first.train.seed;
    for (const SettingChange& change : changed_settings(first, config))
      fail("{} and {} were trained with different {} ({} and {}): trunks may differ in their seeds alone",
           paths[0], path, change.key, change.before, change.after);
  }
  return trunks;
}

/// What was asked for on the command line.
Definition asked_for(const CompareOptions& options) {
  ConfigArguments arguments(options.arguments);
  TETRAD_CHECK((!arguments.files.empty() || !options.branches.empty()) && !options.arms.empty(),
               "nothing to compare; give CONFIG.yaml (or --branch CHECKPOINT) and --arms, or --resume DIR");
  ComparePlan plan = read_plan(options.arms);
  if (options.seeds > 0) plan.seeds = options.seeds;
  if (options.margin > 0) plan.margin = options.margin;
  if (options.looks > 0) plan.looks = options.looks;
  if (options.trunk_steps > 0) plan.trunk_steps = options.trunk_steps;
  if (!options.primary.empty()) plan.windows.primary = options.primary;
  if (options.first_steps > 0) plan.windows.first = options.first_steps;
  if (!options.lr_factors.empty()) plan.lr_factors = options.lr_factors;
  if (options.branches.empty()) return {plan, to_yaml(load_config(arguments.files, arguments.overrides))};
  TETRAD_CHECK(
      arguments.files.empty() && options.seeds == 0,
      "--branch goes on with the configuration and the seeds of its checkpoints: leave out CONFIG.yaml "
      "and --seeds");
  Trunks trunks = open_trunks(options.branches);
  plan.trunks = std::move(trunks.given);
  const std::vector<std::string> saved = {trunks.config_file};
  const Config common = load_config(saved, arguments.overrides);
  check_resumable(load_config(saved, {}), common, saved[0], true);
  return {plan, to_yaml(common)};
}

/// Seeds and trunks may be added to a comparison, since they come after those that are there. Where its
/// verdicts could be seen already, that is remembered.
void grow(const Definition& found, const fs::path& folder, ComparePlan& plan) {
  plan.looked = found.plan.looked;
  if (plan.pairs() > found.plan.pairs() && all_have_ended(expand(found.plan, found.common), folder))
    plan.looked.push_back(found.plan.pairs());
}

/// What is measured after the runs may be said anew whenever a comparison goes on.
void choose_probes(const CompareOptions& options, ComparePlan& plan) {
  if (!options.probes.empty()) plan.probes = options.probes;
  if (options.light) plan.light = true;
}

}  // namespace

std::optional<Definition> found_in(const fs::path& folder) {
  const fs::path plan = folder / kPlanFile;
  if (!fs::exists(plan)) return std::nullopt;
  return Definition{parse_plan(config::read_text(plan.string()), plan.string()),
                    config::read_text((folder / kCommonFile).string())};
}

bool all_have_ended(const Comparison& comparison, const fs::path& folder) {
  return std::ranges::all_of(comparison.trials,
                             [&](const Trial& trial) { return !ending_of(folder / trial.folder).empty(); });
}

Definition define(const CompareOptions& options, const fs::path& folder) {
  const std::optional<Definition> found = found_in(folder);
  if (options.resume.empty()) {
    Definition asked = asked_for(options);
    choose_probes(options, asked.plan);
    if (!found) return asked;
    ComparePlan same = asked.plan;
    same.probes = found->plan.probes;
    same.light = found->plan.light;
    same.seeds = found->plan.seeds;
    same.looked = found->plan.looked;
    same.trunks.resize(std::min(same.trunks.size(), found->plan.trunks.size()));
    TETRAD_CHECK(
        same == found->plan && asked.common == found->common && asked.plan.pairs() >= found->plan.pairs(),
        "{} holds another comparison: continue it (tetrad compare --resume {}) or choose another "
        "--out",
        folder.string(), folder.string());
    grow(*found, folder, asked.plan);
    return asked;
  }
  TETRAD_CHECK(found.has_value(), "{} is not the folder of a comparison: it has no {}", folder.string(),
               kPlanFile);
  TETRAD_CHECK(
      !options.redefines(),
      "--resume continues what {} describes, whose windows, margin and arms were stated before its runs: "
      "leave out everything but --seeds or --branch",
      folder.string());
  Definition definition = *found;
  ComparePlan& plan = definition.plan;
  choose_probes(options, plan);
  TETRAD_CHECK(options.seeds == 0 || plan.trunks.empty(),
               "{} has trunks that were given: add some with --branch", folder.string());
  TETRAD_CHECK(options.branches.empty() || !plan.trunks.empty(), "{} has seeds: add some with --seeds",
               folder.string());
  TETRAD_CHECK(options.seeds == 0 || options.seeds >= plan.seeds, "{} has {} seeds already", folder.string(),
               plan.seeds);
  if (options.seeds > 0) plan.seeds = options.seeds;
  if (!options.branches.empty())
    std::ranges::move(open_trunks(options.branches).given, std::back_inserter(plan.trunks));
  grow(*found, folder, plan);
  return definition;
}

void refuse_files_of_others(const fs::path& folder) {
  for (const char* name : {kCommonFile, kOriginFile, "report.json", "report.html", "runs", "trunks"})
    TETRAD_CHECK(!fs::exists(folder / name),
                 "{} is there, but {} is not the folder of a comparison (it has no {}): choose another --out",
                 (folder / name).string(), folder.string(), kPlanFile);
}

}  // namespace tetrad::app
