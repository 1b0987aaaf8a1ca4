// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <deque>
#include <set>
#include <string_view>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/safetensors.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void caller_is_wrong(const std::string& message) {
  throw Error(fmt::format("{}; this is a bug of the caller", message), ExitCode::failure);
}

/// Bytes that follow those of the part before.
struct Part {
  std::string_view tensor;  //!< its name; empty: a text in the program's memory
  std::uint64_t begin = 0;  //!< in the file
  std::span<const std::byte> bytes;

  std::uint64_t end() const { return begin + bytes.size(); }
};

/// The header and the tensors of a file, in their order there.
std::vector<Part> parts_of(const SafetensorsLayout& layout, const std::string& name,
                           const std::vector<NamedTensor>& tensors) {
  std::map<std::string_view, std::span<const std::byte>> bytes;
  for (const NamedTensor& tensor : tensors) bytes.emplace(tensor.name, tensor.bytes);
  std::vector<Part> parts = {{{}, 0, std::as_bytes(std::span(layout.header))}};
  for (const SafetensorsLayout::Tensor& tensor : layout.tensors) {
    parts.push_back({tensor.name, parts.back().end(), bytes.at(tensor.name)});
    if (parts.back().bytes.size() != tensor.bytes)
      caller_is_wrong(fmt::format("tensor {} of {} has {} bytes, not the {} of its shape",
                                  quoted_name(tensor.name), name, parts.back().bytes.size(), tensor.bytes));
  }
  return parts;
}

/// Reads the bytes of parts, on one thread.
class PartReader {
 public:
  /// `of_tensors` null: they lie in the program's memory.
  explicit PartReader(MemoryReader* of_tensors) : tensors_(of_tensors == nullptr ? &plain_ : of_tensors) {}

  /// At most MemoryReader::kMostBytes.
  std::span<const std::byte> read(const Part& part, std::uint64_t offset, std::uint64_t size) {
    const std::span<const std::byte> memory = part.bytes.subspan(offset, size);
    if (part.tensor.empty()) return memory;
    if (failpoint_fails("checkpoint.read"))
      fail_errno(fmt::format("cannot read the tensor {}", quoted_name(part.tensor)));
    return tensors_->read(memory);
  }

 private:
  PlainMemoryReader plain_;
  MemoryReader* tensors_;
};

/// Writes the parts into an empty file. Each piece is read, hashed and written by one thread, a little at a
/// time, so that the kernel copies what the hash has just brought into the cache.
ManifestFile write_parts(AtomicFile& file, const std::string& name, const std::vector<Part>& parts,
                         const CheckpointContents& contents) {
  const std::uint64_t bytes = parts.back().end();
  const auto write_piece = [&](const FilePiece& piece, std::size_t thread, Sha256& hash) {
    PartReader reader(contents.readers.empty() ? nullptr : contents.readers.at(thread).get());
    const auto first = std::ranges::upper_bound(parts, piece.begin, {}, &Part::end);
    for (auto part = first; part != parts.end() && part->begin < piece.end; ++part) {
      const std::uint64_t end = std::min(piece.end, part->end());
      for (std::uint64_t at = std::max(piece.begin, part->begin); at < end;) {
        const std::uint64_t size = std::min<std::uint64_t>(end - at, MemoryReader::kMostBytes);
        const std::span<const std::byte> read = reader.read(*part, at - part->begin, size);
        hash.update(read);
        file.write_at(at, read);
        at += size;
      }
    }
  };
  return {name, bytes, hash_pieces(bytes, contents.piece_bytes, write_piece)};
}

/// Before each file.
void begin_file(std::string_view name) {
  if (failpoint_fails("checkpoint.write")) fail_errno(fmt::format("cannot write {}", name));
}

}  // namespace

void check_contents(const CheckpointContents& contents) {
  std::set<std::string> names;
  const auto check = [&](const std::string& name) {
    if (!is_checkpoint_file_name(name) || !names.insert(name).second)
      caller_is_wrong(fmt::format("a checkpoint cannot have a file {}, or not twice", quoted_name(name)));
  };
  for (const auto& [name, tensors] : contents.tensor_files) check(name);
  for (const auto& [name, text] : contents.text_files) check(name);
  if (names.empty() || contents.step < 0 || find_invalid_utf8(contents.build) || contents.piece_bytes == 0)
    caller_is_wrong("a checkpoint needs files, a step from 0, a build id in UTF-8 and pieces");
}

std::uint64_t bytes_of(const CheckpointContents& contents) {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensors] : contents.tensor_files)
    for (const NamedTensor& tensor : tensors) bytes += tensor.bytes.size();
  for (const auto& [name, text] : contents.text_files) bytes += text.size();
  return bytes;
}

Manifest write_checkpoint_files(const fs::path& folder, const CheckpointContents& contents,
                                const std::function<void()>& all_read) {
  Manifest manifest{contents.step, contents.build, contents.run, contents.piece_bytes};
  std::deque<AtomicFile> tensor_files;
  for (const auto& [name, tensors] : contents.tensor_files) {
    begin_file(name);
    std::vector<TensorDeclaration> declarations;
    for (const NamedTensor& tensor : tensors)
      declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
    const SafetensorsLayout layout = safetensors_layout(folder / name, declarations);
    const std::vector<Part> parts = parts_of(layout, name, tensors);
    manifest.files.push_back(write_parts(tensor_files.emplace_back(folder / name), name, parts, contents));
  }
  if (failpoint_fails("checkpoint.all_read")) fail_errno("cannot go on when all tensors were read");
  if (all_read) all_read();
  for (AtomicFile& file : tensor_files) file.commit();
  for (const auto& [name, text] : contents.text_files) {
    begin_file(name);
    AtomicFile file(folder / name);
    manifest.files.push_back(write_parts(file, name, {{{}, 0, std::as_bytes(std::span(text))}}, contents));
    file.commit();
  }
  std::ranges::sort(manifest.files, {}, &ManifestFile::name);

  begin_file(kManifestName);
  const std::string text = manifest_text(manifest);
  TETRAD_CHECK(text.size() <= kManifestMaxBytes, "{} would have {} bytes, more than the allowed {}",
               kManifestName, text.size(), kManifestMaxBytes);
  write_file_atomically(folder / kManifestName, text);
  return manifest;
}

}  // namespace tetrad
