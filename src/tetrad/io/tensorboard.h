// SPDX-License-Identifier: Apache-2.0
#pragma once
// Event files that TensorBoard reads: scalars and texts.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tetrad/io/mapped_file.h"

namespace tetrad {

/// One file, `events.out.tfevents.<time>.<host>.<pid>.<n>`, in the folder of a run. A run that resumes writes
/// another one beside the old; TensorBoard joins them. For one thread at a time.
class TensorBoardWriter {
 public:
  /// `first_step`: the first step that this writer will write. TensorBoard drops what earlier files of the
  /// folder hold from that step on, which is what a killed run wrote after its last checkpoint. Throws Error
  /// (failure) if the file cannot be created.
  explicit TensorBoardWriter(const std::filesystem::path& folder, std::int64_t first_step = 0);
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  ~TensorBoardWriter();  //!< Tries to flush.

  /// Kept in memory until there is enough of it, or flush(). `tag` is UTF-8, such as "train/loss".
  void scalar(std::string_view tag, std::int64_t step, double value);

  /// The same for a text, which TensorBoard takes for Markdown.
  void text(std::string_view tag, std::int64_t step, std::string_view text);

  /// Hands what there is to the system. Throws Error (failure) if the disk is full; nothing is lost then, and
  /// flush() can be called again.
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  void record(std::string_view event);
  void record_value(std::int64_t step, std::string_view summary_value);

  std::filesystem::path path_;
  FileDescriptor file_;
  std::string pending_;
};

}  // namespace tetrad
