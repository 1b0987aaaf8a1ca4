#include "tetrad/interchange/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <ranges>
#include <type_traits>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kAlignment = 32;
constexpr std::uint64_t kMaxEntries = 1 << 20;  //!< of metadata, and of tensors
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 48;
constexpr int kMaxListDepth = 4;

/// How the file numbers the kinds of metadata.
enum Kind : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kList = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

std::uint64_t aligned(std::uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

class Composer {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto at = text_.size();
    text_.resize(at + sizeof(T));
    std::memcpy(text_.data() + at, &value, sizeof(T));
  }
  void string(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    text_ += value;
  }
  void raw(std::string_view value) { text_ += value; }

  void value(const GgufValue& value) {
    std::visit([this](const auto& v) { put(v); }, value);
  }

  std::string take() { return std::move(text_); }
  std::size_t size() const { return text_.size(); }

 private:
  void put(std::uint32_t v) { number(kU32), number(v); }
  void put(std::int32_t v) { number(kI32), number(v); }
  void put(float v) { number(kF32), number(v); }
  void put(bool v) { number(kBool), number(static_cast<std::uint8_t>(v)); }
  void put(const std::string& v) { number(kString), string(v); }
  void put(const std::vector<std::string>& v) {
    number(kList), number(kString), number(static_cast<std::uint64_t>(v.size()));
    for (const std::string& item : v) string(item);
  }
  void put(const std::vector<std::int32_t>& v) {
    number(kList), number(kI32), number(static_cast<std::uint64_t>(v.size()));
    for (const std::int32_t item : v) number(item);
  }

  std::string text_;
};

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
    switch (kind) {
      case kU8:
        return GgufValue(std::uint32_t{number<std::uint8_t>()});
      case kU16:
        return GgufValue(std::uint32_t{number<std::uint16_t>()});
      case kU32:
        return GgufValue(number<std::uint32_t>());
      case kI8:
        return GgufValue(std::int32_t{number<std::int8_t>()});
      case kI16:
        return GgufValue(std::int32_t{number<std::int16_t>()});
      case kI32:
        return GgufValue(number<std::int32_t>());
      case kF32:
        return GgufValue(number<float>());
      case kBool:
        return GgufValue(number<std::uint8_t>() != 0);
      case kString:
        return GgufValue(string());
      case kU64:
      case kI64:
      case kF64:
        take(8);
        return std::nullopt;
      case kList:
        return list(depth);
      default:
        fail("{} has metadata of the unknown kind {}: fetch it again", where_, kind);
    }
  }

 private:
  std::optional<GgufValue> list(int depth) {
    TETRAD_CHECK(depth < kMaxListDepth, "{} has lists more than {} deep", where_, kMaxListDepth);
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
    if (texts.size() == count && kind == kString) return GgufValue(std::move(texts));
    if (numbers.size() == count) return GgufValue(std::move(numbers));
    return std::nullopt;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::uint64_t at_ = 0;
};

}  // namespace

std::uint64_t gguf_tensor_bytes(std::string_view where, const GgufTensor& tensor) {
  std::vector<std::uint64_t> extents;
  for (const std::int64_t extent : tensor.shape) {
    TETRAD_CHECK(extent >= 0, "{}: tensor {} has a negative extent", where, quoted_name(tensor.name));
    extents.push_back(static_cast<std::uint64_t>(extent));
  }
  const auto elements = checked_product(extents);
  const auto width = [&]() -> std::uint64_t {
    switch (tensor.type) {
      case GgmlType::f32:
        return 4;
      case GgmlType::f16:
      case GgmlType::bf16:
        return 2;
      case GgmlType::nvfp4:
        return 0;
      default:
        fail("{}: tensor {} has the type {}: only F32, F16, BF16 and NVFP4 are read", where,
             quoted_name(tensor.name), static_cast<std::uint32_t>(tensor.type));
    }
  }();
  std::optional<std::uint64_t> bytes;
  if (elements && width > 0) bytes = checked_mul(*elements, width);
  if (elements && width == 0) {
    TETRAD_CHECK(!tensor.shape.empty() && tensor.shape.back() % kGgmlNvfp4Values == 0,
                 "{}: the rows of {} are no multiple of 64 values, which NVFP4 has in a block", where,
                 quoted_name(tensor.name));
    bytes = checked_mul(*elements / kGgmlNvfp4Values, kGgmlNvfp4Bytes);
  }
  TETRAD_CHECK(bytes, "{}: tensor {} has more bytes than can be counted", where, quoted_name(tensor.name));
  return *bytes;
}

GgufWriter::GgufWriter(const std::filesystem::path& target, const GgufMetadata& metadata,
                       const std::vector<GgufTensor>& tensors)
    : file_(target) {
  Composer header;
  header.raw(kMagic);
  header.number(kVersion);
  header.number(static_cast<std::uint64_t>(tensors.size()));
  header.number(static_cast<std::uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    header.string(key);
    header.value(value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    header.string(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::int64_t extent : std::ranges::reverse_view(tensor.shape))
      header.number(static_cast<std::uint64_t>(extent));
    header.number(static_cast<std::uint32_t>(tensor.type));
    header.number(offset);
    const std::uint64_t bytes = gguf_tensor_bytes("export", tensor);
    slots_[tensor.name] = {offset, bytes, false};
    offset = aligned(offset + bytes);
  }
  const std::uint64_t data_begin = aligned(header.size());
  std::string text = header.take();
  text.resize(data_begin, '\0');
  file_.write_at(0, std::as_bytes(std::span(text)));
  end_ = data_begin + offset;
  for (auto& [name, slot] : slots_) slot.begin += data_begin;
}

void GgufWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const auto found = slots_.find(name);
  if (found == slots_.end() || found->second.written || found->second.bytes != bytes.size())
    throw Error(fmt::format("tensor {} is not as it was declared; this is a bug of the caller", name),
                ExitCode::failure);
  Slot& slot = found->second;
  file_.write_at(slot.begin, bytes);
  // The gap behind it is part of the file.
  constexpr std::byte kZeros[kAlignment] = {};
  file_.write_at(slot.begin + slot.bytes,
                 std::span(kZeros).first(aligned(slot.begin + slot.bytes) - slot.begin - slot.bytes));
  slot.written = true;
}

void GgufWriter::commit() {
  for (const auto& [name, slot] : slots_)
    if (!slot.written)
      throw Error(fmt::format("tensor {} was not written; this is a bug of the caller", name),
                  ExitCode::failure);
  file_.commit();
}

namespace {

void read_metadata(Cursor& cursor, std::uint64_t entries, const std::string& where, GgufHeader& header) {
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::string key = cursor.string();
    std::optional<GgufValue> value = cursor.value(cursor.number<std::uint32_t>());
    TETRAD_CHECK(!header.metadata.contains(key), "{} has the key {} twice", where, quoted_name(key));
    if (value) header.metadata.emplace(key, std::move(*value));
  }
}

GgufHeader::Place read_place(Cursor& cursor, const std::string& where) {
  GgufHeader::Place place;
  place.tensor.name = cursor.string();
  const auto dimensions = cursor.number<std::uint32_t>();
  TETRAD_CHECK(dimensions <= kMaxDimensions, "{}: tensor {} has {} dimensions, more than {}", where,
               quoted_name(place.tensor.name), dimensions, kMaxDimensions);
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    const auto extent = cursor.number<std::uint64_t>();
    TETRAD_CHECK(extent <= kMaxExtent, "{}: tensor {} has an extent of {}, which cannot be", where,
                 quoted_name(place.tensor.name), extent);
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
                   alignment->second == GgufValue(static_cast<std::uint32_t>(kAlignment)),
               "{} has another alignment than {}, which is not read", where, kAlignment);
  for (auto& [name, place] : header.tensors) {
    const auto begin = checked_add(data_begin, place.begin);
    const auto end = begin ? checked_add(*begin, place.bytes) : std::nullopt;
    TETRAD_CHECK(end && *end <= file_size && place.begin % kAlignment == 0,
                 "{}: the data of {} is not in the file: fetch it again", where, quoted_name(name));
    place.begin = *begin;
  }
}

}  // namespace

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where) {
  Cursor cursor(file, where);
  const auto magic = cursor.take(std::min<std::uint64_t>(kMagic.size(), file.size()));
  TETRAD_CHECK(std::ranges::equal(magic, std::as_bytes(std::span(kMagic))), "{} is not a GGUF file", where);
  const auto version = cursor.number<std::uint32_t>();
  TETRAD_CHECK(version == kVersion, "{} has version {} of GGUF; only {} is read", where, version, kVersion);
  const auto tensors = cursor.number<std::uint64_t>();
  const auto entries = cursor.number<std::uint64_t>();
  TETRAD_CHECK(tensors <= kMaxEntries && entries <= kMaxEntries,
               "{} says that it has {} tensors and {} entries, which cannot be: fetch it again", where,
               tensors, entries);
  GgufHeader header;
  read_metadata(cursor, entries, where, header);
  for (std::uint64_t i = 0; i < tensors; ++i) {
    GgufHeader::Place place = read_place(cursor, where);
    const std::string name = place.tensor.name;
    TETRAD_CHECK(header.tensors.emplace(name, std::move(place)).second, "{} has the tensor {} twice", where,
                 quoted_name(name));
  }
  place_data(header, aligned(cursor.at()), file.size(), where);
  return header;
}

GgufFile::GgufFile(const std::filesystem::path& path)
    : where_(fmt::format("{:?}", path.native())), file_(path), header_(parse_gguf(file_.bytes(), where_)) {}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = header_.metadata.find(key);
  return found == header_.metadata.end() ? nullptr : &found->second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = header_.tensors.find(name);
  return found == header_.tensors.end() ? nullptr : &found->second.tensor;
}

std::span<const std::byte> GgufFile::bytes(std::string_view name) const {
  const GgufHeader::Place& place = header_.tensors.find(name)->second;
  return file_.bytes().subspan(place.begin, place.bytes);
}

std::vector<std::string> GgufFile::tensor_names() const {
  std::vector<std::string> names;
  names.reserve(header_.tensors.size());
  for (const auto& [name, place] : header_.tensors) names.push_back(name);
  return names;
}

}  // namespace tetrad
