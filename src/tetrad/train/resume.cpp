// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/resume.h"

#include <map>
#include <span>

#include "tetrad/core/error.h"
#include "tetrad/io/sha256.h"
#include "tetrad/train/schedule.h"

namespace tetrad {

bool may_change_on_resume(const std::string& key) {
  const bool is_place =
      key == "data.tokenizer" || key == "train.from" ||
      (key.starts_with("data.sources.") && (key.ends_with(".path") || key.ends_with(".heldout")));
  return is_place || key.starts_with("run.") ||
         (key.starts_with("parallel.") && key != "parallel.gradient_wire") ||
         key.starts_with("train.checkpoint") || key.starts_with("train.eval") || key == "train.log_every" ||
         key == "train.telemetry_every" || key == "train.recompute" || key.starts_with("train.memory");
}

std::string settings_hash(const Config& config) {
  std::string text;
  for (const auto& [key, value] : leaf_texts(config))
    if (!may_change_on_resume(key)) text.append(key).append("=").append(value).append("\n");
  return sha256_hex(std::as_bytes(std::span(text)));
}

bool may_be_changed(const std::string& key) {
  return key == "train.steps" || key == "train.tokens" || key.starts_with("train.health") ||
         key.starts_with("optim.") || key.starts_with("schedule.") || key.starts_with("precision.") ||
         key.starts_with("data.phases") || key.starts_with("data.sources.");
}

std::vector<SettingChange> changed_settings(Config saved, const Config& now) {
  // Before signs could be left to the recipe, fixed stood for nothing said.
  if (!now.precision.rht.signs && saved.precision.rht.signs == "fixed") saved.precision.rht.signs.reset();
  const auto texts = [](const Config& config) {
    const auto leaves = leaf_texts(config);
    return std::map<std::string, std::string>(leaves.begin(), leaves.end());
  };
  const auto before = texts(saved);
  const auto after = texts(now);
  const auto value = [](const std::map<std::string, std::string>& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("nothing") : found->second;
  };
  std::vector<SettingChange> changes;
  for (const std::string& key : differences(saved, now))
    if (!may_change_on_resume(key)) changes.push_back({key, value(before, key), value(after, key)});
  return changes;
}

void check_resumable(const Config& saved, const Config& now, const std::filesystem::path& saved_in,
                     bool changes_are_meant) {
  for (const SettingChange& change : changed_settings(saved, now)) {
    TETRAD_CHECK(
        changes_are_meant || !may_be_changed(change.key),
        "{} is {} now, and was {} when the run began ({}): put it back, or say with --change that the run "
        "is to go on with it",
        change.key, change.after, change.before, saved_in.string());
    TETRAD_CHECK(may_be_changed(change.key),
                 "{} cannot change when a run goes on, and is not what it was when the run began ({}): put "
                 "it back, or "
                 "start a new run with --out",
                 change.key, saved_in.string());
  }
}

void check_branch(const BranchPoint& from, const Config& config) {
  TETRAD_CHECK(from.step < step_count(config.train),
               "{} has made {} steps already, and a branch from there is to end with step {}: give more "
               "train.steps",
               from.checkpoint, from.step, step_count(config.train));
}

}  // namespace tetrad
