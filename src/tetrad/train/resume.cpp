// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/resume.h"

#include <span>

#include "tetrad/core/error.h"
#include "tetrad/io/sha256.h"

namespace tetrad {

bool may_change_on_resume(const std::string& key) {
  const bool is_place =
      key == "data.tokenizer" || key == "train.from" ||
      (key.starts_with("data.sources.") && (key.ends_with(".path") || key.ends_with(".heldout")));
  return is_place || key.starts_with("run.") || key.starts_with("train.checkpoint") ||
         key.starts_with("train.eval") || key == "train.log_every" || key == "train.recompute";
}

std::string settings_hash(const Config& config) {
  std::string text;
  for (const auto& [key, value] : leaf_texts(config))
    if (!may_change_on_resume(key)) text.append(key).append("=").append(value).append("\n");
  return sha256_hex(std::as_bytes(std::span(text)));
}

void check_resumable(const Config& saved, const Config& now, const std::filesystem::path& saved_in) {
  for (const std::string& key : differences(saved, now))
    TETRAD_CHECK(
        may_change_on_resume(key),
        "{} cannot change when a run is resumed, and is not what it was when the run began ({}): put it "
        "back, or start a new run with --out",
        key, saved_in.string());
}

}  // namespace tetrad
