#pragma once
// A file that appears whole or not at all.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "tetrad/io/mapped_file.h"

namespace tetrad {

/// Writes into a temporary file in the folder of `target`. commit() puts it in the place of `target` at once;
/// without commit() nothing remains and an existing target is untouched. A symbolic link is replaced, not
/// followed. Everything goes through a descriptor of the folder, so that neither a change of the working
/// directory nor a renamed parent can lead the rename elsewhere.
class OutputFile {
 public:
  /// Throws Error (bad input) if the file cannot be created.
  explicit OutputFile(const std::filesystem::path& target);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Throws Error (failure) if the disk is full.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void append(std::span<const std::byte> bytes);  //!< After the last append.

  /// Makes the contents durable under the temporary name. Nothing can be written afterwards.
  void flush();

  /// Flushes, renames and makes the rename durable. Writers of several files flush all of them first, so that
  /// a full disk is noticed before the first rename.
  void commit();

  /// Removes what is there under the name of the target, if anything.
  void remove_target();

 private:
  void check_target() const;
  void create_temporary();
  [[noreturn]] void failed(std::string_view action) const;

  std::string target_;          //!< For messages.
  std::string name_;            //!< Within the folder.
  std::string temporary_name_;  //!< Empty when there is none to remove.
  std::uint64_t end_ = 0;       //!< Of what was appended.
  FileDescriptor folder_;
  FileDescriptor file_;
};

/// Writes a whole small file. Throws like OutputFile.
void write_whole_file(const std::filesystem::path& target, std::string_view contents);

}  // namespace tetrad
