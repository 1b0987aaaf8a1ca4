// SPDX-License-Identifier: Apache-2.0
#pragma once
// metrics.jsonl: what happened in a run, one JSON object with `step` per line, in the order it happened.

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "tetrad/io/mapped_file.h"

namespace tetrad {

/// Append-only. Each line is one write(2), so that a reader, or a killed run, never sees half of one that a
/// later line follows. Write every line of step k before the checkpoint of step k, and call sync() between:
/// then a run that resumes at k continues the very file of an uninterrupted run.
class MetricsLog {
 public:
  /// Creates the file if there is none, and removes what comes after `last_step` as cut_after() does: the
  /// step of the checkpoint for a run that resumes, -1 for one that begins.
  MetricsLog(std::filesystem::path path, std::int64_t last_step);

  /// `json` is one object without line breaks. Throws Error (failure) if the disk is full; the file then ends
  /// with the line before, and the log can be used again.
  void append(std::string_view json);

  /// Makes the lines so far durable against a power cut. Throws Error (failure).
  void sync();

  /// Removes every line with a greater step, a last line without its line break, and any line that is no
  /// object with a whole number `step` (left by a power cut). The file is replaced at once or not at all.
  /// Returns how many lines went. Throws Error (failure).
  std::int64_t cut_after(std::int64_t step);

  /// For a run that resumes from the checkpoint of `step`: cut_after(), and removes what was written after
  /// its last line ("kind": "checkpoint") too, because it will happen again. Lines of kind "resume" stay.
  /// Returns whether there is such a line: a kill may have come before it. Throws Error (failure).
  bool cut_after_checkpoint(std::int64_t step);

 private:
  struct Line;

  void open();
  template <typename Stays>
  std::int64_t keep_lines(const Stays& stays);

  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace tetrad
