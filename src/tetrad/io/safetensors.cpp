// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/safetensors.h"

#include <fmt/ranges.h>
#include <sys/types.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"

namespace tetrad {
namespace {

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

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& target,
                                     const std::vector<TensorDeclaration>& tensors,
                                     std::map<std::string, std::string> metadata, Sha256* hash)
    : target_(fmt::format("{:?}", target.native())) {
  metadata.insert_or_assign("format", "pt");
  declare(tensors);
  assign_offsets();
  const std::string header = header_bytes(metadata);
  data_begin_ = header.size();
  output_ = std::make_unique<AtomicFile>(target, hash);
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

std::vector<std::string> SafetensorsWriter::data_order() const {
  std::vector<const std::pair<const std::string, Slot>*> order;
  order.reserve(slots_.size());
  for (const auto& entry : slots_) order.push_back(&entry);
  // Empty tensors share their offset with the one that follows, hence the size as second key.
  std::ranges::stable_sort(
      order, {}, [](const auto* entry) { return std::pair(entry->second.begin, entry->second.bytes); });
  std::vector<std::string> names;
  names.reserve(order.size());
  for (const auto* entry : order) names.push_back(entry->first);
  return names;
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
  const std::unique_ptr<AtomicFile> output =
      std::move(output_);  // One attempt: if it fails, the temporary file goes.
  output->commit();
}

}  // namespace tetrad
