// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/megatron_index.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"

namespace tetrad {
namespace {

constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kHeaderBytes = 34;
constexpr std::uint64_t kSequenceBytes = sizeof(std::int32_t) + sizeof(std::int64_t);  // length and pointer
constexpr std::uint8_t kI32 = 4;
constexpr std::uint8_t kU16 = 8;

/// The format promises no alignment.
template <typename T>
T load(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void append_value(std::vector<std::byte>& bytes, T value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

std::uint64_t item_bytes(DType dtype) { return static_cast<std::uint64_t>(bits_of(dtype)) / 8; }

/// The three arrays behind the header.
struct Arrays {
  std::span<const std::byte> index;
  std::uint64_t sequences;
  std::uint64_t boundaries;  //!< number of documents, plus one

  explicit Arrays(std::span<const std::byte> bytes)
      : index(bytes), sequences(load<std::uint64_t>(bytes, 18)), boundaries(load<std::uint64_t>(bytes, 26)) {}

  std::int32_t length(std::uint64_t i) const {
    return load<std::int32_t>(index, kHeaderBytes + i * sizeof(std::int32_t));
  }
  std::int64_t pointer(std::uint64_t i) const {
    return load<std::int64_t>(index,
                              kHeaderBytes + sequences * sizeof(std::int32_t) + i * sizeof(std::int64_t));
  }
  std::int64_t boundary(std::uint64_t i) const {
    return load<std::int64_t>(index, kHeaderBytes + sequences * kSequenceBytes + i * sizeof(std::int64_t));
  }
};

DType read_dtype(std::span<const std::byte> index, const std::string& where) {
  TETRAD_CHECK(index.size() >= kHeaderBytes, "{}: {} bytes are too few for an index; is the file cut short?",
               where, index.size());
  TETRAD_CHECK(std::memcmp(index.data(), kMagic.data(), kMagic.size()) == 0,
               "{}: not a Megatron index (it does not begin with MMIDIDX)", where);
  const auto version = load<std::uint64_t>(index, 9);
  TETRAD_CHECK(version == kVersion, "{}: version {} of the index is unknown; only 1 can be read", where,
               version);
  const auto code = load<std::uint8_t>(index, 17);
  TETRAD_CHECK(code == kI32 || code == kU16,
               "{}: dtype {} is not one of 4 (int32) and 8 (uint16); convert the tokens", where, code);
  return code == kI32 ? DType::i32 : DType::u16;
}

void check_size(const Arrays& arrays, const std::string& where) {
  const auto by_sequence = checked_mul(arrays.sequences, kSequenceBytes);
  const auto by_document = checked_mul(arrays.boundaries, sizeof(std::int64_t));
  const auto body = by_sequence && by_document ? checked_add(*by_sequence, *by_document) : std::nullopt;
  TETRAD_CHECK(
      body && *body == arrays.index.size() - kHeaderBytes,
      "{}: {} sequences and {} document boundaries do not fit a file of {} bytes; it is damaged or cut short",
      where, arrays.sequences, arrays.boundaries, arrays.index.size());
}

void check_sequences(const Arrays& arrays, std::uint64_t item, std::uint64_t bin_bytes,
                     const std::string& where, const std::string& bin) {
  std::uint64_t end = 0;  // in the .bin; checked in every step, so it cannot overflow
  for (std::uint64_t i = 0; i < arrays.sequences; ++i) {
    const std::int32_t length = arrays.length(i);
    const std::int64_t pointer = arrays.pointer(i);
    TETRAD_CHECK(length >= 0, "{}: sequence {} has the length {}; the file is damaged", where, i, length);
    TETRAD_CHECK(
        pointer >= 0 && static_cast<std::uint64_t>(pointer) == end,
        "{}: sequence {} begins at byte {}, but the one before it ends at {}; the file is damaged or "
        "its sequences are not in order",
        where, i, pointer, end);
    end += static_cast<std::uint64_t>(length) * item;
    TETRAD_CHECK(end <= bin_bytes, "{}: sequence {} ends at byte {}, but {} has only {}; is it cut short?",
                 where, i, end, bin, bin_bytes);
  }
  TETRAD_CHECK(end == bin_bytes,
               "{}: the sequences take {} bytes, but {} has {}; the files do not belong together", where, end,
               bin, bin_bytes);
}

void check_documents(const Arrays& arrays, const std::string& where) {
  std::int64_t last = 0;
  for (std::uint64_t i = 0; i < arrays.boundaries; ++i) {
    const std::int64_t boundary = arrays.boundary(i);
    const bool fits = i == 0 ? boundary == 0 : boundary >= last;
    TETRAD_CHECK(fits && static_cast<std::uint64_t>(boundary) <= arrays.sequences,
                 "{}: document boundary {} is at sequence {}, which is out of order; the file is damaged",
                 where, i, boundary);
    last = boundary;
  }
  TETRAD_CHECK(arrays.boundaries > 0 && static_cast<std::uint64_t>(last) == arrays.sequences,
               "{}: the last document ends at sequence {}, not at the last one ({}); the file is damaged",
               where, last, arrays.sequences);
}

}  // namespace

MegatronIndex check_megatron_index(std::span<const std::byte> index, std::uint64_t bin_bytes,
                                   const std::string& name) {
  const std::string where = fmt::format("{:?}", name + ".idx");
  const DType dtype = read_dtype(index, where);
  const Arrays arrays(index);
  check_size(arrays, where);
  check_sequences(arrays, item_bytes(dtype), bin_bytes, where, fmt::format("{:?}", name + ".bin"));
  check_documents(arrays, where);
  return {dtype, static_cast<std::int64_t>(bin_bytes / item_bytes(dtype)),
          static_cast<std::int64_t>(arrays.boundaries) - 1};
}

std::vector<std::int64_t> megatron_document_ends(std::span<const std::byte> index) {
  const Arrays arrays(index);
  std::vector<std::int64_t> ends;
  std::uint64_t sequence = 0;
  std::int64_t tokens = 0;
  for (std::uint64_t i = 1; i < arrays.boundaries; ++i) {
    const std::int64_t before = tokens;
    for (; sequence < static_cast<std::uint64_t>(arrays.boundary(i)); ++sequence)
      tokens += arrays.length(sequence);
    if (tokens > before) ends.push_back(tokens);
  }
  return ends;
}

std::vector<std::byte> megatron_index_bytes(DType dtype, std::span<const std::int32_t> lengths,
                                            std::span<const std::int64_t> document_ends) {
  std::vector<std::byte> index;
  for (const char c : kMagic) append_value(index, c);
  append_value(index, kVersion);
  append_value(index, dtype == DType::i32 ? kI32 : kU16);
  append_value(index, std::uint64_t{lengths.size()});
  append_value(index, std::uint64_t{document_ends.size()} + 1);
  for (const std::int32_t length : lengths) append_value(index, length);
  std::uint64_t pointer = 0;
  for (const std::int32_t length : lengths) {
    append_value(index, pointer);
    pointer += static_cast<std::uint64_t>(length) * item_bytes(dtype);
  }
  append_value(index, std::int64_t{0});
  for (const std::int64_t end : document_ends) append_value(index, end);
  return index;
}

}  // namespace tetrad
