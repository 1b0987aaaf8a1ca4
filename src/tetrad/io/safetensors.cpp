#include "tetrad/io/safetensors.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"

namespace tetrad {
namespace {

[[noreturn]] void cannot_create(const std::string& target, const std::string& reason) {
  fail("cannot write {}: {}; choose another output path, or create its folder and check its permissions",
       target, reason);
}

std::string errno_message() { return std::generic_category().message(errno); }

int fsync_retrying(int fd) {
  int result = 0;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  return result;
}

void check_utf8(const std::string& target, std::string_view what, std::string_view text) {
  TETRAD_CHECK(!find_invalid_utf8(text), "cannot write {}: {} {} is not valid UTF-8; rename it", target, what,
               quoted_name(text));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), header_(parse_safetensors_header(file_.bytes(), path.native())) {}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  const auto data = file_.bytes().subspan(header_.data_begin);
  if (tensor.begin > tensor.end || tensor.end > data.size())
    throw Error(fmt::format("tensor {} is not of this file; take it from tensors() or find()",
                            quoted_name(tensor.name)),
                ExitCode::failure);
  return data.subspan(tensor.begin, tensor.end - tensor.begin);
}

/// The temporary file. It goes through a descriptor of its folder, so that neither a change of the working
/// directory nor a renamed parent can lead the rename elsewhere.
class SafetensorsWriter::Output {
 public:
  Output(const std::filesystem::path& target, std::string target_for_messages);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (!temporary_name_.empty()) ::unlinkat(folder_.get(), temporary_name_.c_str(), 0);
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  void check_target() const;
  void create_temporary();
  [[noreturn]] void failed(std::string_view action) const {
    const int code = errno;
    const std::string what =
        fmt::format("{} {} (a file already there is unchanged; check the free space and health of the disk)",
                    action, target_);
    errno = code;
    fail_errno(what);
  }

  std::string target_;          //!< For messages.
  std::string name_;            //!< Within the folder.
  std::string temporary_name_;  //!< Empty when there is none to remove.
  FileDescriptor folder_;
  FileDescriptor file_;
};

SafetensorsWriter::Output::Output(const std::filesystem::path& target, std::string target_for_messages)
    : target_(std::move(target_for_messages)), name_(target.filename().native()) {
  if (name_.empty()) cannot_create(target_, "the path names no file");
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  folder_ = FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_.is_open())
    cannot_create(target_, fmt::format("folder {:?}: {}", folder.native(), errno_message()));
  check_target();
  create_temporary();
}

void SafetensorsWriter::Output::check_target() const {
  struct stat status {};
  if (::fstatat(folder_.get(), name_.c_str(), &status, 0) != 0)
    return;  // Nothing there that could be in the way.
  if (S_ISDIR(status.st_mode)) cannot_create(target_, "it is a folder");
  if (!S_ISREG(status.st_mode)) cannot_create(target_, "it exists and is not a regular file");
}

void SafetensorsWriter::Output::create_temporary() {
  static std::atomic<unsigned> counter = 0;
  // A process id comes back after a restart (always, in a container), so that names left by a killed run may
  // be taken.
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = fmt::format("{}.tmp.{}.{}", name_, ::getpid(), counter++);
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

void SafetensorsWriter::Output::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0)
      errno = ENOSPC;  // A disk that takes nothing and says nothing must not keep us here for ever.
    if (written <= 0) failed("failed to write");
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void SafetensorsWriter::Output::commit() {
  if (fsync_retrying(file_.get()) != 0) failed("failed to flush");
  if (::close(file_.release()) != 0 && errno != EINTR) failed("failed to close");
  if (::renameat(folder_.get(), temporary_name_.c_str(), folder_.get(), name_.c_str()) != 0)
    failed("failed to replace");
  temporary_name_.clear();
  // EINVAL: a file system that knows no fsync of folders; there is nothing more to ask of it.
  if (fsync_retrying(folder_.get()) != 0 && errno != EINVAL)
    fail_errno(
        fmt::format("wrote {}, but failed to flush its folder; a power cut may still undo it", target_));
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& target,
                                     const std::vector<TensorDeclaration>& tensors,
                                     std::map<std::string, std::string> metadata)
    : target_(fmt::format("{:?}", target.native())) {
  metadata.insert_or_assign("format", "pt");
  declare(tensors);
  assign_offsets();
  const std::string header = header_bytes(metadata);
  data_begin_ = header.size();
  output_ = std::make_unique<Output>(target, target_);
  output_->write_at(0, std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::declare(const std::vector<TensorDeclaration>& tensors) {
  for (const TensorDeclaration& tensor : tensors) {
    const std::string name = quoted_name(tensor.name);
    TETRAD_CHECK(!tensor.name.empty(), "cannot write {}: a tensor has no name; name it", target_);
    TETRAD_CHECK(tensor.name != kSafetensorsMetadataKey,
                 "cannot write {}: a tensor cannot be called {}, which the format reserves; rename it",
                 target_, name);
    check_utf8(target_, "tensor name", tensor.name);
    const std::uint64_t bytes = checked_tensor_bytes(fmt::format("cannot write {}: tensor {}", target_, name),
                                                     tensor.dtype, tensor.shape);
    const bool is_new =
        slots_.try_emplace(tensor.name, Slot{tensor.dtype, tensor.shape, bytes, 0, false}).second;
    TETRAD_CHECK(is_new, "cannot write {}: there are two tensors {}; rename one", target_, name);
  }
}

void SafetensorsWriter::assign_offsets() {
  std::vector<Slot*> order;
  order.reserve(slots_.size());
  for (auto& [name, slot] : slots_) order.push_back(&slot);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const Slot* slot) { return bits_of(slot->dtype); });

  // The header and the data together must stay within what a file offset can hold.
  constexpr std::uint64_t kMaxData = std::numeric_limits<off_t>::max() - 2 * kSafetensorsMaxHeaderBytes;
  std::uint64_t end = 0;
  for (Slot* slot : order) {
    slot->begin = end;
    const auto sum = checked_add(end, slot->bytes);
    TETRAD_CHECK(sum && *sum <= kMaxData,
                 "cannot write {}: its tensors have more bytes than a file can hold; split it", target_);
    end = *sum;
  }
}

std::string SafetensorsWriter::header_bytes(const std::map<std::string, std::string>& metadata) const {
  for (const auto& [key, value] : metadata) {
    check_utf8(target_, "metadata key", key);
    check_utf8(target_, "metadata value", value);
  }
  std::string json = fmt::format("{{\"{}\":{}", kSafetensorsMetadataKey, nlohmann::json(metadata).dump());
  for (const auto& [name, slot] : slots_)
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        nlohmann::json(name).dump(), name_of(slot.dtype), fmt::join(slot.shape, ","),
                        slot.begin, slot.begin + slot.bytes);
  json += '}';
  constexpr std::size_t kAlignment = 8;
  json.append((kAlignment - json.size() % kAlignment) % kAlignment, ' ');
  TETRAD_CHECK(
      json.size() <= kSafetensorsMaxHeaderBytes,
      "cannot write {}: the header takes {} bytes, more than the allowed {}; split the file into shards",
      target_, json.size(), kSafetensorsMaxHeaderBytes);

  std::string prefix(kSafetensorsPrefixBytes, '\0');
  for (std::size_t i = 0; i < prefix.size(); ++i)
    prefix[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return prefix + json;
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(fmt::format("cannot write tensor {} to {}: {}; this is a bug of the caller",
                            quoted_name(name), target_, reason),
                ExitCode::failure);
  };
  if (!output_) refuse("the file is finished");
  const auto found = slots_.find(name);
  if (found == slots_.end()) refuse("it was not declared");
  Slot& slot = found->second;
  if (slot.written) refuse("it was written already");
  if (bytes.size() != slot.bytes)
    refuse(fmt::format("it was declared with {} bytes, not {}", slot.bytes, bytes.size()));
  output_->write_at(data_begin_ + slot.begin, bytes);
  slot.written = true;
}

void SafetensorsWriter::commit() {
  const auto refuse = [&](const std::string& reason) {
    throw Error(fmt::format("cannot commit {}: {}; this is a bug of the caller", target_, reason),
                ExitCode::failure);
  };
  if (!output_) refuse("it is finished");
  for (const auto& [name, slot] : slots_)
    if (!slot.written) refuse(fmt::format("tensor {} was not written", quoted_name(name)));
  const std::unique_ptr<Output> output =
      std::move(output_);  // One attempt: if it fails, the temporary file goes.
  output->commit();
}

}  // namespace tetrad
