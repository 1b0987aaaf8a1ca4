// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad {
namespace {

constexpr std::uint64_t kMaxEntries = 1 << 20;  //!< most metadata entries, and most tensors
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 48;
constexpr int kMaxListDepth = 4;

/// Reads from the front; every step is checked against what is left.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string string() {
    const auto size = number<std::uint64_t>();
    const std::span<const std::byte> text = take(size);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  std::span<const std::byte> take(std::uint64_t size) {
    TETRAD_CHECK(size <= bytes_.size() - at_, "{} is cut short or damaged (byte {}): fetch it again", where_,
                 at_);
    const auto piece = bytes_.subspan(at_, size);
    at_ += size;
    return piece;
  }
  std::uint64_t at() const { return at_; }

  /// Nothing if the value is of a kind that we do not keep; it is read over.
  std::optional<GgufValue> value(std::uint32_t kind, int depth = 0) {
    switch (static_cast<GgufKind>(kind)) {
      case GgufKind::u8:
        return GgufValue(std::uint32_t{number<std::uint8_t>()});
      case GgufKind::u16:
        return GgufValue(std::uint32_t{number<std::uint16_t>()});
      case GgufKind::u32:
        return GgufValue(number<std::uint32_t>());
      case GgufKind::i8:
        return GgufValue(std::int32_t{number<std::int8_t>()});
      case GgufKind::i16:
        return GgufValue(std::int32_t{number<std::int16_t>()});
      case GgufKind::i32:
        return GgufValue(number<std::int32_t>());
      case GgufKind::f32:
        return GgufValue(number<float>());
      case GgufKind::flag:
        return GgufValue(number<std::uint8_t>() != 0);
      case GgufKind::text:
        return GgufValue(string());
      case GgufKind::u64:
      case GgufKind::i64:
      case GgufKind::f64:
        take(8);
        return std::nullopt;
      case GgufKind::list:
        return list(depth);
      default:
        fail("{} has metadata of the unknown kind {}: fetch it again", where_, kind);
    }
  }

 private:
  std::optional<GgufValue> list(int depth) {
    TETRAD_CHECK(depth < kMaxListDepth, "{} has lists more than {} deep: {}", where_, kMaxListDepth,
                 kGgufDamaged);
    const auto kind = number<std::uint32_t>();
    const auto count = number<std::uint64_t>();
    // Every element takes at least a byte, so this bounds what is allocated.
    TETRAD_CHECK(count <= bytes_.size() - at_, "{} is cut short or damaged (byte {}): fetch it again", where_,
                 at_);
    std::vector<std::string> texts;
    std::vector<std::int32_t> numbers;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::optional<GgufValue> item = value(kind, depth + 1);
      if (!item) continue;
      if (auto* text = std::get_if<std::string>(&*item)) texts.push_back(std::move(*text));
      if (const auto* number = std::get_if<std::int32_t>(&*item)) numbers.push_back(*number);
      if (const auto* number = std::get_if<std::uint32_t>(&*item))
        numbers.push_back(static_cast<std::int32_t>(*number));
    }
    if (texts.size() == count && static_cast<GgufKind>(kind) == GgufKind::text)
      return GgufValue(std::move(texts));
    if (numbers.size() == count) return GgufValue(std::move(numbers));
    return std::nullopt;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::uint64_t at_ = 0;
};

void read_metadata(Cursor& cursor, std::uint64_t entries, const std::string& where, GgufHeader& header) {
  std::set<std::string> keys;  // also of values that are not kept
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::string key = cursor.string();
    std::optional<GgufValue> value = cursor.value(cursor.number<std::uint32_t>());
    TETRAD_CHECK(keys.insert(key).second, "{} has the key {} twice: {}", where, quoted_name(key),
                 kGgufDamaged);
    if (value) header.metadata.emplace(key, std::move(*value));
  }
}

GgufHeader::Place read_place(Cursor& cursor, const std::string& where) {
  GgufHeader::Place place;
  place.tensor.name = cursor.string();
  const auto dimensions = cursor.number<std::uint32_t>();
  TETRAD_CHECK(dimensions <= kMaxDimensions, "{}: tensor {} has {} dimensions, more than {}: {}", where,
               quoted_name(place.tensor.name), dimensions, kMaxDimensions, kGgufDamaged);
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    const auto extent = cursor.number<std::uint64_t>();
    TETRAD_CHECK(extent <= kMaxExtent, "{}: tensor {} has an extent of {}, which cannot be: {}", where,
                 quoted_name(place.tensor.name), extent, kGgufDamaged);
    place.tensor.shape.insert(place.tensor.shape.begin(), static_cast<std::int64_t>(extent));
  }
  place.tensor.type = static_cast<GgmlType>(cursor.number<std::uint32_t>());
  place.begin = cursor.number<std::uint64_t>();
  place.bytes = gguf_tensor_bytes(where, place.tensor);
  return place;
}

/// From offsets within the data to offsets within the file.
void place_data(GgufHeader& header, std::uint64_t data_begin, std::uint64_t file_size,
                const std::string& where) {
  const auto alignment = header.metadata.find("general.alignment");
  TETRAD_CHECK(alignment == header.metadata.end() ||
                   alignment->second == GgufValue(static_cast<std::uint32_t>(kGgufAlignment)),
               "{} has another alignment than {}, which is not read: {}", where, kGgufAlignment,
               kGgufDamaged);
  std::vector<const GgufHeader::Place*> order;
  for (auto& [name, place] : header.tensors) {
    const auto begin = checked_add(data_begin, place.begin);
    const auto end = begin ? checked_add(*begin, place.bytes) : std::nullopt;
    TETRAD_CHECK(end && *end <= file_size, "{}: the data of {} is not in the file: fetch it again", where,
                 quoted_name(name));
    TETRAD_CHECK(place.begin % kGgufAlignment == 0, "{}: the data of {} is not aligned to {} bytes: {}",
                 where, quoted_name(name), kGgufAlignment, kGgufDamaged);
    place.begin = *begin;
    order.push_back(&place);
  }
  // Empty tensors may begin where the next one does.
  std::ranges::sort(order, {}, [](const auto* place) { return std::pair(place->begin, place->bytes); });
  for (std::size_t i = 1; i < order.size(); ++i)
    TETRAD_CHECK(order[i - 1]->begin + order[i - 1]->bytes <= order[i]->begin, "{}: {} and {} overlap: {}",
                 where, quoted_name(order[i - 1]->tensor.name), quoted_name(order[i]->tensor.name),
                 kGgufDamaged);
}

}  // namespace

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where) {
  Cursor cursor(file, where);
  const auto magic = cursor.take(std::min<std::uint64_t>(kGgufMagic.size(), file.size()));
  TETRAD_CHECK(std::ranges::equal(magic, std::as_bytes(std::span(kGgufMagic))),
               "{} is not a GGUF file: name a .gguf file, or the folder that config.json is in", where);
  const auto version = cursor.number<std::uint32_t>();
  TETRAD_CHECK(version == kGgufVersion, "{} has version {} of GGUF; only {} is read", where, version,
               kGgufVersion);
  const auto tensors = cursor.number<std::uint64_t>();
  const auto entries = cursor.number<std::uint64_t>();
  TETRAD_CHECK(tensors <= kMaxEntries && entries <= kMaxEntries,
               "{} says that it has {} tensors and {} entries, which cannot be: fetch it again", where,
               tensors, entries);
  GgufHeader header;
  header.where = where;
  read_metadata(cursor, entries, where, header);
  for (std::uint64_t i = 0; i < tensors; ++i) {
    GgufHeader::Place place = read_place(cursor, where);
    const std::string name = place.tensor.name;
    TETRAD_CHECK(header.tensors.emplace(name, std::move(place)).second, "{} has the tensor {} twice: {}",
                 where, quoted_name(name), kGgufDamaged);
  }
  place_data(header, gguf_aligned(cursor.at()), file.size(), where);
  return header;
}

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // a pipe would keep us waiting
  std::string magic(kGgufMagic.size(), '\0');
  std::ifstream(path, std::ios::binary).read(magic.data(), std::ssize(magic));
  return magic == kGgufMagic;
}

const GgufTensor* GgufHeader::find_tensor(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second.tensor;
}

GgufFile::GgufFile(const std::filesystem::path& path)
    : file_(path), header_(parse_gguf(file_.bytes(), fmt::format("{:?}", path.native()))) {}

std::span<const std::byte> GgufFile::bytes(std::string_view name) const {
  const GgufHeader::Place& place = header_.tensors.find(name)->second;
  return file_.bytes().subspan(place.begin, place.bytes);
}

}  // namespace tetrad
