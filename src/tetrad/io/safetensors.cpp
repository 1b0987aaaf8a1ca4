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

/// A tensor in the header.
struct Place {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes;
  std::uint64_t begin;  //!< Within the data section.
};
using Places = std::map<std::string, Place>;  //!< By name.

Places declare(const std::string& target, const std::vector<TensorDeclaration>& tensors) {
  Places places;
  for (const TensorDeclaration& tensor : tensors) {
    const std::string name = quoted_name(tensor.name);
    TETRAD_CHECK(!tensor.name.empty(), "cannot write {}: a tensor has no name; name it", target);
    TETRAD_CHECK(tensor.name != kSafetensorsMetadataKey,
                 "cannot write {}: a tensor cannot be called {}, which the format reserves; rename it",
                 target, name);
    check_utf8(target, "tensor name", tensor.name);
    const std::uint64_t bytes = checked_tensor_bytes(fmt::format("cannot write {}: tensor {}", target, name),
                                                     tensor.dtype, tensor.shape);
    const bool is_new = places.try_emplace(tensor.name, Place{tensor.dtype, tensor.shape, bytes, 0}).second;
    TETRAD_CHECK(is_new, "cannot write {}: there are two tensors {}; rename one", target, name);
  }
  return places;
}

/// Returns the order of their data.
std::vector<Places::value_type*> assign_offsets(const std::string& target, Places& places) {
  std::vector<Places::value_type*> order;
  order.reserve(places.size());
  for (Places::value_type& place : places) order.push_back(&place);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const auto* place) { return bits_of(place->second.dtype); });

  // The header and the data together must stay within what a file offset can hold.
  constexpr std::uint64_t kMaxData = std::numeric_limits<off_t>::max() - 2 * kSafetensorsMaxHeaderBytes;
  std::uint64_t end = 0;
  for (Places::value_type* place : order) {
    place->second.begin = end;
    const auto sum = checked_add(end, place->second.bytes);
    TETRAD_CHECK(sum && *sum <= kMaxData,
                 "cannot write {}: its tensors have more bytes than a file can hold; split it", target);
    end = *sum;
  }
  return order;
}

std::string header_bytes(const std::string& target, const Places& places,
                         const std::map<std::string, std::string>& metadata) {
  for (const auto& [key, value] : metadata) {
    check_utf8(target, "metadata key", key);
    check_utf8(target, "metadata value", value);
  }
  std::string json = fmt::format("{{\"{}\":{}", kSafetensorsMetadataKey, nlohmann::json(metadata).dump());
  for (const auto& [name, place] : places)
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        nlohmann::json(name).dump(), name_of(place.dtype), fmt::join(place.shape, ","),
                        place.begin, place.begin + place.bytes);
  json += '}';
  constexpr std::size_t kAlignment = 8;
  json.append((kAlignment - json.size() % kAlignment) % kAlignment, ' ');
  TETRAD_CHECK(
      json.size() <= kSafetensorsMaxHeaderBytes,
      "cannot write {}: the header takes {} bytes, more than the allowed {}; split the file into shards",
      target, json.size(), kSafetensorsMaxHeaderBytes);

  std::string prefix(kSafetensorsPrefixBytes, '\0');
  for (std::size_t i = 0; i < prefix.size(); ++i)
    prefix[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return prefix + json;
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

SafetensorsLayout safetensors_layout(const std::filesystem::path& target,
                                     const std::vector<TensorDeclaration>& tensors,
                                     std::map<std::string, std::string> metadata) {
  const std::string quoted = fmt::format("{:?}", target.native());
  metadata.insert_or_assign("format", "pt");
  Places places = declare(quoted, tensors);
  const std::vector<Places::value_type*> order = assign_offsets(quoted, places);
  SafetensorsLayout layout{header_bytes(quoted, places, metadata), {}};
  for (const Places::value_type* place : order) layout.tensors.push_back({place->first, place->second.bytes});
  return layout;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& target,
                                     const std::vector<TensorDeclaration>& tensors,
                                     std::map<std::string, std::string> metadata, Sha256* hash)
    : target_(fmt::format("{:?}", target.native())) {
  const SafetensorsLayout layout = safetensors_layout(target, tensors, std::move(metadata));
  std::uint64_t begin = layout.header.size();
  for (const SafetensorsLayout::Tensor& tensor : layout.tensors) {
    slots_.try_emplace(tensor.name, Slot{begin, tensor.bytes, false});
    data_order_.push_back(tensor.name);
    begin += tensor.bytes;
  }
  output_ = std::make_unique<AtomicFile>(target, hash);
  output_->write_at(0, std::as_bytes(std::span(layout.header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

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
  output_->write_at(slot.begin, bytes);
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
