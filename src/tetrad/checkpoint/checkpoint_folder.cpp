// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>

#include "tetrad/checkpoint/piece_hashes.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/io/mapped_file.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

/// A system call on a part of a checkpoint failed: it may be good, and readable the next time. Not so what is
/// there instead of a folder or file.
[[noreturn]] void unreadable(std::string_view name) {
  const int code = errno;
  const bool is_damage = code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENXIO;
  errno = code;
  fail_errno(fmt::format("{} cannot be read", name), is_damage ? ExitCode::bad_input : ExitCode::failure);
}

/// A lock on the manifest, which is written once and then never replaced.
std::optional<FileDescriptor> lock_manifest(const fs::path& folder, int kind) {
  const fs::path path = folder / kManifestName;
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.is_open()) return std::nullopt;
  if (::flock(file.get(), kind | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  struct stat locked {};
  struct stat named {};
  const bool is_still_there = ::fstat(file.get(), &locked) == 0 && ::stat(path.c_str(), &named) == 0 &&
                              locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
  if (!is_still_there) return std::nullopt;
  return file;
}

/// A regular file of the folder, and its size.
std::pair<FileDescriptor, std::uint64_t> open_part(int folder, const std::string& name) {
  // O_NONBLOCK: a pipe in the place of a file must fail, not hang.
  FileDescriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.is_open() && errno == ENOENT) fail("{} is missing", name);
  if (!file.is_open()) unreadable(name);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) unreadable(name);
  TETRAD_CHECK(S_ISREG(status.st_mode), "{} is not a regular file", name);
  return {std::move(file), static_cast<std::uint64_t>(status.st_size)};
}

/// Calls use(bytes) for all bytes of a piece of the file, a little at a time. Reads rather than maps: a
/// broken disk is then an error, no signal.
template <typename Use>
void read_piece(const FileDescriptor& file, std::string_view name, const FilePiece& piece, const Use& use) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
  std::vector<std::byte> buffer(std::min(kMostBytes, piece.end - piece.begin));
  for (std::uint64_t at = piece.begin; at < piece.end;) {
    const auto wanted = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), piece.end - at));
    const ssize_t count = ::pread(file.get(), wanted.data(), wanted.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) unreadable(name);
    TETRAD_CHECK(count > 0, "{} becomes shorter while it is read", name);
    use(std::span<const std::byte>(wanted).first(static_cast<std::size_t>(count)));
    at += static_cast<std::uint64_t>(count);
  }
}

FileDescriptor open_folder(const fs::path& folder) {
  FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open()) unreadable("the folder");
  return descriptor;
}

Manifest read_manifest(int folder) {
  const std::string name(kManifestName);
  const auto [file, size] = open_part(folder, name);
  TETRAD_CHECK(size <= kManifestMaxBytes, "{} has {} bytes, more than the allowed {}", name, size,
               kManifestMaxBytes);
  std::string text;
  read_piece(file, name, {0, size}, [&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return parse_manifest(text);
}

/// The file, if its size is right.
FileDescriptor open_listed(int folder, const ManifestFile& listed) {
  auto [file, size] = open_part(folder, listed.name);
  TETRAD_CHECK(size == listed.bytes, "{} has {} bytes instead of {}", listed.name, size, listed.bytes);
  return std::move(file);
}

}  // namespace

CheckpointEntry parse_entry(const fs::path& path) {
  CheckpointEntry entry{.path = path};
  const std::string name = path.filename().native();
  if (!name.starts_with(kPrefix)) return entry;
  const char* const begin = name.data() + kPrefix.size();
  const char* const end = name.data() + name.size();
  std::int64_t step = -1;
  const auto [stop, error] = std::from_chars(begin, end, step);
  const bool leading_zero = *begin == '0' && stop != begin + 1;
  if (error != std::errc() || step < 0 || *begin == '-' || leading_zero) return entry;
  const std::string_view rest(stop, end);
  if (rest.empty()) entry.kind = EntryKind::checkpoint;
  if (rest.starts_with(".tmp.")) entry.kind = EntryKind::temporary;
  if (rest.starts_with(".old.")) entry.kind = EntryKind::set_aside;
  if (entry.kind != EntryKind::other) entry.step = step;
  return entry;
}

std::vector<CheckpointEntry> scan_checkpoints(const fs::path& folder) {
  std::vector<CheckpointEntry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().native().starts_with(kPrefix)) entries.push_back(parse_entry(it->path()));
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(fmt::format("cannot read the checkpoints in {:?}: {}; check the path and its permissions",
                            folder.native(), error.message()),
                ExitCode::no_checkpoint);
  std::ranges::sort(entries, [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return std::tuple(b.step, a.kind, a.path) < std::tuple(a.step, b.kind, b.path);
  });
  return entries;
}

Manifest verify_checkpoint(const fs::path& folder, Reread reread) {
  const FileDescriptor descriptor = open_folder(folder);
  Manifest manifest = read_manifest(descriptor.get());
  const CheckpointEntry entry = parse_entry(folder);
  TETRAD_CHECK(entry.step < 0 || entry.step == manifest.step, "the folder says step {}, but {} says step {}",
               entry.step, kManifestName, manifest.step);
  // All sizes first: a file cut short is found without reading the others.
  for (const ManifestFile& listed : manifest.files) open_listed(descriptor.get(), listed);
  for (const ManifestFile& listed : manifest.files) {
    const FileDescriptor file = open_listed(descriptor.get(), listed);
    if (failpoint_fails("checkpoint.verify")) unreadable(listed.name);
    if (reread == Reread::from_disk) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    const auto read = [&](const FilePiece& piece, std::size_t /*thread*/, Sha256& hash) {
      read_piece(file, listed.name, piece, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
    };
    TETRAD_CHECK(hash_pieces(listed.bytes, manifest.piece_bytes, read) == listed.sha256,
                 "{} is damaged: its bytes do not have the hashes in {}", listed.name, kManifestName);
  }
  return manifest;
}

std::optional<FileDescriptor> lock_for_reading(const fs::path& folder) {
  return lock_manifest(folder, LOCK_SH);
}

std::optional<FileDescriptor> lock_for_deleting(const fs::path& folder) {
  return lock_manifest(folder, LOCK_EX);
}

std::uint64_t checkpoint_bytes(const fs::path& folder) {
  std::uint64_t bytes = fs::file_size(folder / kManifestName);
  for (const ManifestFile& listed : read_manifest(open_folder(folder).get()).files) bytes += listed.bytes;
  return bytes;
}

bool looks_complete(const fs::path& folder) {
  try {
    const FileDescriptor descriptor = open_folder(folder);
    for (const ManifestFile& listed : read_manifest(descriptor.get()).files)
      open_listed(descriptor.get(), listed);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tetrad
