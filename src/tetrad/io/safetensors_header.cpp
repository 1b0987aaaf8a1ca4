// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kDamaged =
    "the file is damaged or was written by a faulty program; fetch or export it again";
constexpr std::string_view kCutShort = "the copy or download was cut short; fetch the file again";

/// Receives the JSON piece by piece and accepts nothing but the four levels that the format has, so that
/// neither nesting nor surplus content costs memory. Every callback either consumes its value or throws
/// Error.
class HeaderReader final : public Json::json_sax_t {
 public:
  HeaderReader(std::string file, SafetensorsHeader& header) : file_(std::move(file)), header_(header) {}

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool binary(binary_t&) override { refuse("binary data"); }
  // Only a number with a minus sign comes here.
  bool number_integer(number_integer_t value) override { refuse(value == 0 ? "-0" : fmt::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { refuse_number(text); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(std::size_t) override;
  bool key(string_t& key) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& token, const Json::exception& error) override;

 private:
  enum class Place { before, top, metadata, entry, list, after };
  enum class Field { dtype, shape, data_offsets };
  static constexpr std::array<std::string_view, 3> kFieldNames = {"dtype", "shape", "data_offsets"};

  [[noreturn]] void damaged(std::string_view what) const { fail("{}: {}; {}", file_, what, kDamaged); }
  [[noreturn]] void refuse(std::string_view found) const;
  [[noreturn]] void refuse_number(std::string_view text) const { refuse(text.substr(0, 40)); }
  std::string tensor() const { return fmt::format("tensor {}", quoted_name(name_)); }
  std::string_view field_name() const { return kFieldNames[static_cast<std::size_t>(field_)]; }
  void start_field(std::string_view key);
  void finish_entry();

  std::string file_;
  SafetensorsHeader& header_;
  Place place_ = Place::before;
  bool has_metadata_ = false;
  std::string metadata_key_;

  // The entry that is being read.
  std::string name_;
  Field field_ = Field::dtype;
  std::array<bool, 3> seen_{};
  DType dtype_{};
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> offsets_;
};

/// The value just read cannot stand where it stands.
void HeaderReader::refuse(std::string_view found) const {
  std::string subject;
  std::string_view wanted;
  if (place_ == Place::metadata) {
    subject = fmt::format("the value of {} in {}", quoted_name(metadata_key_), kSafetensorsMetadataKey);
    wanted = "a string";
  } else if (place_ == Place::top && name_ == kSafetensorsMetadataKey) {
    subject = kSafetensorsMetadataKey;
    wanted = "an object that maps strings to strings";
  } else if (place_ == Place::top) {
    subject = fmt::format("the entry of {}", tensor());
    wanted = "an object with dtype, shape and data_offsets";
  } else if (place_ == Place::list) {
    subject = fmt::format("{}: an element of {}", tensor(), field_name());
    wanted = "a whole number from 0 to 2^63 - 1";
  } else {
    subject = fmt::format("{}: {}", tensor(), field_name());
    wanted = field_ == Field::dtype ? "a string" : "a list of whole numbers";
  }
  damaged(fmt::format("{} is {}, but must be {}", subject, found, wanted));
}

bool HeaderReader::number_unsigned(number_unsigned_t value) {
  if (place_ != Place::list || value > std::numeric_limits<std::int64_t>::max())
    refuse(fmt::to_string(value));
  std::vector<std::int64_t>& list = field_ == Field::shape ? shape_ : offsets_;
  const std::size_t limit = field_ == Field::shape ? kSafetensorsMaxRank : 2;
  if (list.size() == limit)
    damaged(fmt::format("{}: {} has more than {} elements", tensor(), field_name(), limit));
  list.push_back(static_cast<std::int64_t>(value));
  return true;
}

bool HeaderReader::string(string_t& value) {
  if (place_ == Place::metadata) {
    if (!header_.metadata.emplace(metadata_key_, std::move(value)).second)
      damaged(fmt::format("{} holds {} twice", kSafetensorsMetadataKey, quoted_name(metadata_key_)));
    return true;
  }
  if (place_ != Place::entry || field_ != Field::dtype) refuse("a string");
  const std::optional<DType> dtype = dtype_from_name(value);
  TETRAD_CHECK(dtype,
               "{}: {} has the unknown dtype {}; convert it to one that Tetrad reads, such as F32 or BF16",
               file_, tensor(), quoted_name(value));
  dtype_ = *dtype;
  return true;
}

bool HeaderReader::start_object(std::size_t) {
  if (place_ == Place::before) {
    place_ = Place::top;
  } else if (place_ == Place::top) {
    place_ = name_ == kSafetensorsMetadataKey ? Place::metadata : Place::entry;
  } else {
    refuse("an object");
  }
  return true;
}

bool HeaderReader::key(string_t& key) {
  if (place_ == Place::metadata) {
    metadata_key_ = std::move(key);
  } else if (place_ == Place::entry) {
    start_field(key);
  } else {
    name_ = std::move(key);
    seen_.fill(false);
    shape_.clear();
    offsets_.clear();
    if (name_ == kSafetensorsMetadataKey && std::exchange(has_metadata_, true))
      damaged(fmt::format("{} occurs twice", kSafetensorsMetadataKey));
  }
  return true;
}

void HeaderReader::start_field(std::string_view key) {
  const auto found = std::find(kFieldNames.begin(), kFieldNames.end(), key);
  if (found == kFieldNames.end())
    damaged(fmt::format("{} has the unknown field {} (only dtype, shape and data_offsets are allowed)",
                        tensor(), quoted_name(key)));
  const auto index = static_cast<std::size_t>(found - kFieldNames.begin());
  field_ = static_cast<Field>(index);
  if (std::exchange(seen_[index], true)) damaged(fmt::format("{} has the field {} twice", tensor(), key));
}

bool HeaderReader::end_object() {
  if (place_ == Place::entry) finish_entry();
  place_ = place_ == Place::top ? Place::after : Place::top;
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (place_ != Place::entry || field_ == Field::dtype) refuse("a list");
  place_ = Place::list;
  return true;
}

bool HeaderReader::end_array() {
  place_ = Place::entry;
  return true;
}

void HeaderReader::finish_entry() {
  for (std::size_t i = 0; i < seen_.size(); ++i)
    if (!seen_[i]) damaged(fmt::format("{} has no field {}", tensor(), kFieldNames[i]));
  if (offsets_.size() != 2)
    damaged(fmt::format("{}: data_offsets must hold two numbers, not {}", tensor(), offsets_.size()));
  const auto begin = static_cast<std::uint64_t>(offsets_[0]);
  const auto end = static_cast<std::uint64_t>(offsets_[1]);
  if (begin > end)
    damaged(fmt::format("{}: data_offsets [{}, {}] end before they begin", tensor(), begin, end));

  const std::uint64_t bytes = checked_tensor_bytes(fmt::format("{}: {}", file_, tensor()), dtype_, shape_);
  if (bytes != end - begin)
    damaged(fmt::format("{}: shape [{}] of {} takes {} bytes, but data_offsets [{}, {}] hold {}", tensor(),
                        fmt::join(shape_, ", "), name_of(dtype_), bytes, begin, end, end - begin));
  header_.tensors.push_back({std::move(name_), dtype_, shape_, begin, end});
}

bool HeaderReader::parse_error(std::size_t position, const std::string& token, const Json::exception& error) {
  constexpr int kNumberOverflow = 406;  // The library's id for a number that no double holds, such as 1e999.
  if (error.id == kNumberOverflow) refuse_number(token);
  if (place_ == Place::after)
    damaged(fmt::format("the header goes on after the end of its JSON object (byte {})", position));
  damaged(fmt::format("the header is not valid JSON (byte {})", position));
}

/// The JSON text, known to lie within the file and to be safe to hand to the JSON library.
std::string_view header_text(std::span<const std::byte> file, const std::string& name) {
  TETRAD_CHECK(file.size() >= kSafetensorsPrefixBytes,
               "{}: the file has {} bytes, too few for a safetensors file; {}", name, file.size(), kCutShort);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kSafetensorsPrefixBytes; ++i)
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  TETRAD_CHECK(length <= kSafetensorsMaxHeaderBytes,
               "{}: the header would be {} bytes long, more than the allowed {}; this is not a safetensors "
               "file, or its "
               "first 8 bytes are damaged",
               name, length, kSafetensorsMaxHeaderBytes);
  TETRAD_CHECK(length <= file.size() - kSafetensorsPrefixBytes,
               "{}: truncated: the header should end at byte {}, but the file has only {} bytes; {}", name,
               kSafetensorsPrefixBytes + length, file.size(), kCutShort);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kSafetensorsPrefixBytes, length);
  TETRAD_CHECK(text.starts_with('{'),
               "{}: the header does not start with '{{'; this is not a safetensors file", name);
  if (const auto bad = find_invalid_utf8(text))
    fail("{}: the header is not valid UTF-8 (byte {}); {}", name, *bad, kDamaged);
  // The JSON library takes a zero byte for the end of its input and would not look at what follows it.
  const std::size_t zero = text.find('\0');
  TETRAD_CHECK(zero == text.npos, "{}: the header is not valid JSON (zero byte at byte {}); {}", name, zero,
               kDamaged);
  // Padding is spaces; the other white space of JSON is no padding.
  const std::size_t last = text.find_last_not_of(' ');
  TETRAD_CHECK(text[last] == '}', "{}: the header does not end with its JSON object and spaces (byte {}); {}",
               name, last, kDamaged);
  return text;
}

void index_names(SafetensorsHeader& header, const std::string& name) {
  header.by_name.resize(header.tensors.size());
  std::iota(header.by_name.begin(), header.by_name.end(), std::size_t{0});
  const auto name_at = [&](std::size_t i) -> const std::string& { return header.tensors[i].name; };
  std::ranges::sort(header.by_name, {}, name_at);
  const auto twin = std::ranges::adjacent_find(header.by_name, {}, name_at);
  if (twin != header.by_name.end())
    fail("{}: tensor {} occurs twice; {}", name, quoted_name(name_at(*twin)), kDamaged);
}

/// The tensors must follow each other without holes or overlaps and fill the data section.
void check_layout(const SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& name) {
  std::uint64_t filled = 0;
  for (const TensorInfo& tensor : header.tensors) {
    TETRAD_CHECK(tensor.begin <= filled,
                 "{}: there is a hole: no tensor holds the bytes {} to {} in front of tensor {}; {}", name,
                 filled, tensor.begin, quoted_name(tensor.name), kDamaged);
    TETRAD_CHECK(tensor.begin == filled,
                 "{}: tensor {} overlaps another: it begins at {}, but data is taken up to {}; {}", name,
                 quoted_name(tensor.name), tensor.begin, filled, kDamaged);
    filled = tensor.end;
  }
  TETRAD_CHECK(filled <= data_bytes,
               "{}: truncated: the tensors take {} bytes, but the file holds only {} of them; {}", name,
               filled, data_bytes, kCutShort);
  TETRAD_CHECK(filled == data_bytes, "{}: {} trailing bytes after the last tensor; {}", name,
               data_bytes - filled, kDamaged);
}

/// Length of the UTF-8 sequence at the front of `text`, which is not empty; 0 if there is none.
std::size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  if (lead >= 0xC2 && lead <= 0xDF) length = 2;
  if (lead >= 0xE0 && lead <= 0xEF) length = 3;
  if (lead >= 0xF0 && lead <= 0xF4) length = 4;
  // After these leads a part of the second byte's range would be an overlong form, a surrogate or beyond
  // U+10FFFF.
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (length == 0 || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

}  // namespace

const TensorInfo* SafetensorsHeader::find(std::string_view name) const {
  const auto name_at = [&](std::size_t i) -> std::string_view { return tensors[i].name; };
  const auto found = std::ranges::lower_bound(by_name, name, {}, name_at);
  return found != by_name.end() && name_at(*found) == name ? &tensors[*found] : nullptr;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           std::string_view name_for_messages) {
  const std::string name = fmt::format("{:?}", name_for_messages);
  const std::string_view text = header_text(file, name);
  SafetensorsHeader header;
  header.data_begin = kSafetensorsPrefixBytes + text.size();
  HeaderReader reader(name, header);
  Json::sax_parse(text.begin(), text.end(), &reader);
  // Empty tensors share their offset with the one that follows, hence the end as second key.
  std::ranges::sort(header.tensors, {}, [](const TensorInfo& t) { return std::tie(t.begin, t.end, t.name); });
  index_names(header, name);
  check_layout(header, file.size() - header.data_begin, name);
  return header;
}

std::uint64_t checked_tensor_bytes(std::string_view where, DType dtype, std::span<const std::int64_t> shape) {
  TETRAD_CHECK(shape.size() <= kSafetensorsMaxRank,
               "{}: {} extents are more than the allowed {}; reshape the tensor", where, shape.size(),
               kSafetensorsMaxRank);
  std::array<std::uint64_t, kSafetensorsMaxRank> extents{};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    TETRAD_CHECK(shape[i] >= 0, "{}: shape [{}] has a negative extent; correct the shape", where,
                 fmt::join(shape, ", "));
    extents[i] = static_cast<std::uint64_t>(shape[i]);
  }
  const auto elements = checked_product(std::span(extents).first(shape.size()));
  const auto bits =
      elements ? checked_mul(*elements, static_cast<std::uint64_t>(bits_of(dtype))) : std::nullopt;
  TETRAD_CHECK(bits,
               "{}: shape [{}] of {} has more bytes than can be counted (overflow), or endless rows of "
               "nothing; correct the shape",
               where, fmt::join(shape, ", "), name_of(dtype));
  TETRAD_CHECK(*bits % 8 == 0, "{}: shape [{}] of {} does not fill whole bytes; pad the tensor", where,
               fmt::join(shape, ", "), name_of(dtype));
  return *bits / 8;
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_sequence_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kMaxShown = 160;
  if (name.size() <= kMaxShown) return fmt::format("{:?}", name);
  return fmt::format("{:?}...", name.substr(0, kMaxShown));
}

}  // namespace tetrad
