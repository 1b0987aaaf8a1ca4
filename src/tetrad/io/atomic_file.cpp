// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {
namespace {

constexpr std::string_view kTemporary = ".tmp.";  // between a name and what makes it unique

[[noreturn]] void cannot_create(const std::string& target, const std::string& reason) {
  fail("cannot write {}: {}; choose another output path, or check the permissions of its folder", target,
       reason);
}

std::string errno_message() { return std::generic_category().message(errno); }

int fsync_retrying(int fd) {
  int result = 0;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

bool sync_folder(int folder) {
  // EINVAL: a file system that knows no fsync of folders; there is nothing more to ask of it.
  return fsync_retrying(folder) == 0 || errno == EINVAL;
}

bool sync_folder(const std::filesystem::path& folder) {
  const std::filesystem::path& path = folder.empty() ? std::filesystem::path(".") : folder;
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return descriptor.is_open() && sync_folder(descriptor.get());
}

FoldersAbove::FoldersAbove(const std::filesystem::path& output) {
  const std::filesystem::path folder = output.parent_path();
  if (folder.empty()) return;
  std::error_code error;
  for (std::filesystem::path path = folder; !path.empty() && !std::filesystem::exists(path, error);
       path = path.parent_path())
    made_.push_back(path);
  std::filesystem::create_directories(folder, error);
  if (!error) return;
  remove_empty();
  cannot_create(fmt::format("{:?}", output.native()),
                fmt::format("folder {:?}: {}", folder.native(), error.message()));
}

void FoldersAbove::remove_empty() const {
  for (const std::filesystem::path& folder : made_) ::rmdir(folder.c_str());  // fails unless it is empty
}

AtomicFile::AtomicFile(const std::filesystem::path& target, Sha256* hash)
    : target_(fmt::format("{:?}", target.native())), name_(target.filename().native()), hash_(hash) {
  if (name_.empty()) cannot_create(target_, "the path names no file");
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  folder_ = FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_.is_open())
    cannot_create(target_, fmt::format("folder {:?}: {}", folder.native(), errno_message()));
  check_target();
  create_temporary();
}

AtomicFile::~AtomicFile() {
  if (!temporary_name_.empty()) ::unlinkat(folder_.get(), temporary_name_.c_str(), 0);
}

void AtomicFile::check_target() const {
  struct stat status {};
  if (::fstatat(folder_.get(), name_.c_str(), &status, 0) != 0)
    return;  // Nothing there that could be in the way.
  if (S_ISDIR(status.st_mode)) cannot_create(target_, "it is a folder");
  if (!S_ISREG(status.st_mode)) cannot_create(target_, "it exists and is not a regular file");
}

void AtomicFile::create_temporary() {
  static std::atomic<unsigned> counter = 0;
  // A process id comes back after a restart (always, in a container), so that names left by a killed run may
  // be taken.
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (failpoint_fails("file.create")) break;
    std::string name = fmt::format("{}{}{}.{}", name_, kTemporary, ::getpid(), counter++);
    file_ =
        FileDescriptor(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_.is_open()) {
      temporary_name_ = std::move(name);
      return;
    }
    if (errno != EEXIST && errno != EINTR) break;
  }
  cannot_create(target_, errno_message());
}

void AtomicFile::failed(std::string_view action) const {
  const int code = errno;
  const std::string what =
      fmt::format("{} {} (a file already there is unchanged; check the free space and health of the disk)",
                  action, target_);
  errno = code;
  fail_errno(what);
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (hash_ == nullptr) {
    write_piece(offset, bytes);
    return;
  }
  if (offset != end_)
    throw Error(fmt::format("cannot write {}: bytes at {} come after bytes at {}, but a hash is computed; "
                            "this is a bug of the caller",
                            target_, offset, end_.load()),
                ExitCode::failure);
  // In pieces, so that the kernel copies what the hash has just brought into the cache.
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kPiece, bytes.size()));
    hash_->update(piece);
    write_piece(end_, piece);
    bytes = bytes.subspan(piece.size());
  }
}

void AtomicFile::write_piece(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (failpoint_fails("file.write")) failed("failed to write");
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0)
      errno = ENOSPC;  // A disk that takes nothing and says nothing must not keep us here for ever.
    if (written <= 0) failed("failed to write");
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  for (std::uint64_t end = end_; end < offset && !end_.compare_exchange_weak(end, offset);) continue;
}

void AtomicFile::flush() {
  if (failpoint_fails("file.fsync") || fsync_retrying(file_.get()) != 0) failed("failed to flush");
  if (failpoint_fails("file.close") || (::close(file_.release()) != 0 && errno != EINTR))
    failed("failed to close");
}

void AtomicFile::remove_target() {
  if (::unlinkat(folder_.get(), name_.c_str(), 0) != 0 && errno != ENOENT) failed("failed to replace");
}

void AtomicFile::commit() {
  if (file_.is_open()) flush();
  if (failpoint_fails("file.rename") ||
      ::renameat(folder_.get(), temporary_name_.c_str(), folder_.get(), name_.c_str()) != 0)
    failed("failed to replace");
  temporary_name_.clear();
  if (failpoint_fails("file.fsync_folder") || !sync_folder(folder_.get()))
    fail_errno(
        fmt::format("wrote {}, but failed to flush its folder; a power cut may still undo it", target_));
}

void remove_leftovers(const std::filesystem::path& folder, std::string_view name) {
  const std::string prefix = fmt::format("{}{}", name, kTemporary);
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().filename().native().starts_with(prefix) && it->is_regular_file(ignored))
      std::filesystem::remove(it->path(), ignored);
  }
}

std::filesystem::path unused_path(const std::filesystem::path& prefix) {
  static std::atomic<unsigned> counter = 0;
  for (;;) {
    std::filesystem::path path = prefix;
    path += fmt::format("{}.{}", ::getpid(), counter++);
    std::error_code error;
    if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found)
      return path;
    if (error)
      throw Error(fmt::format("cannot examine {:?}: {}", path.native(), error.message()), ExitCode::failure);
  }
}

void write_file_atomically(const std::filesystem::path& target, std::string_view text) {
  AtomicFile file(target);
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace tetrad
