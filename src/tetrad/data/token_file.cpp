#include "tetrad/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"

namespace tetrad {
namespace {

constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kHeaderBytes = 34;
constexpr std::uint64_t kSequenceBytes = sizeof(std::int32_t) + sizeof(std::int64_t);  // length and pointer
constexpr std::uint8_t kI32 = 4;
constexpr std::uint8_t kU16 = 8;
constexpr std::int64_t kMaxU16Vocab = 65536;
constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // tokens that one thread looks at in one go

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

}  // namespace

std::string token_file_name(const std::string& path) {
  const std::filesystem::path p(path);
  return p.extension() == ".bin" || p.extension() == ".idx" ? (p.parent_path() / p.stem()).string() : path;
}

TokenFile::TokenFile(const std::string& path)
    : name_(token_file_name(path)), where_(fmt::format("{:?}", name_ + ".idx")), tokens_(name_ + ".bin") {
  std::error_code ignored;
  if (!std::filesystem::exists(name_ + ".idx", ignored)) {
    open_single(path);
    return;
  }
  const MappedFile index(name_ + ".idx");
  check_index(index.bytes());
  const std::filesystem::path sidecar = name_ + ".json";
  if (!std::filesystem::exists(sidecar, ignored)) return;
  metadata_ = read_token_metadata(sidecar);
  TETRAD_CHECK(
      metadata_->tokens == size_,
      "{:?} speaks of {} tokens, but the token file has {}: it belongs to another file; remove it or "
      "prepare the data again",
      sidecar.native(), metadata_->tokens, size_);
}

void TokenFile::open_single(const std::string& path) {
  where_ = fmt::format("{:?}", name_ + ".bin");
  std::optional<TokenLayout> layout = llmc_layout(tokens_.bytes(), where_);
  TETRAD_CHECK(layout || path.ends_with(".bin"),
               "{} has no {:?} beside it, and no header of llm.c: name it with .bin if it holds tokens of 16 "
               "bits and nothing else (nanoGPT)",
               where_, name_ + ".idx");
  if (!layout) {
    std::error_code ignored;
    TETRAD_CHECK(!std::filesystem::exists(name_ + ".json", ignored),
                 "{} has a .json but no .idx: one of three files is lost; make them again", where_);
    layout = raw_layout(tokens_.bytes(), where_);
  }
  format_ = layout->format;
  dtype_ = layout->dtype;
  begin_ = layout->begin;
  size_ = layout->tokens;
  documents_ = size_ > 0 ? 1 : 0;
}

template <typename T>
const T* TokenFile::data() const {
  // A map begins on a page and a header has whole words, so the elements are aligned.
  return reinterpret_cast<const T*>(tokens_.bytes().data() + begin_);
}

void TokenFile::check_index(std::span<const std::byte> index) {
  TETRAD_CHECK(index.size() >= kHeaderBytes, "{}: {} bytes are too few for an index; is the file cut short?",
               where_, index.size());
  TETRAD_CHECK(std::memcmp(index.data(), kMagic.data(), kMagic.size()) == 0,
               "{}: not a Megatron index (it does not begin with MMIDIDX)", where_);
  const auto version = load<std::uint64_t>(index, 9);
  TETRAD_CHECK(version == kVersion, "{}: version {} of the index is unknown; only 1 can be read", where_,
               version);
  const auto code = load<std::uint8_t>(index, 17);
  TETRAD_CHECK(code == kI32 || code == kU16,
               "{}: dtype {} is not one of 4 (int32) and 8 (uint16); convert the tokens", where_, code);
  dtype_ = code == kI32 ? DType::i32 : DType::u16;
  const auto item = static_cast<std::uint64_t>(bits_of(dtype_) / 8);

  const auto sequences = load<std::uint64_t>(index, 18);
  const auto boundaries = load<std::uint64_t>(index, 26);
  const auto by_sequence = checked_mul(sequences, kSequenceBytes);
  const auto by_document = checked_mul(boundaries, sizeof(std::int64_t));
  const auto body = by_sequence && by_document ? checked_add(*by_sequence, *by_document) : std::nullopt;
  TETRAD_CHECK(
      body && *body == index.size() - kHeaderBytes,
      "{}: {} sequences and {} document boundaries do not fit a file of {} bytes; it is damaged or cut short",
      where_, sequences, boundaries, index.size());

  const std::uint64_t pointers = kHeaderBytes + sequences * sizeof(std::int32_t);
  std::uint64_t end = 0;  // in the .bin; checked in every step, so it cannot overflow
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const auto length = load<std::int32_t>(index, kHeaderBytes + i * sizeof(std::int32_t));
    const auto pointer = load<std::int64_t>(index, pointers + i * sizeof(std::int64_t));
    TETRAD_CHECK(length >= 0, "{}: sequence {} has the length {}; the file is damaged", where_, i, length);
    TETRAD_CHECK(
        pointer >= 0 && static_cast<std::uint64_t>(pointer) == end,
        "{}: sequence {} begins at byte {}, but the one before it ends at {}; the file is damaged or "
        "its sequences are not in order",
        where_, i, pointer, end);
    end += static_cast<std::uint64_t>(length) * item;
    TETRAD_CHECK(end <= tokens_.bytes().size(),
                 "{}: sequence {} ends at byte {}, but {:?} has only {}; is it cut short?", where_, i, end,
                 name_ + ".bin", tokens_.bytes().size());
  }
  TETRAD_CHECK(end == tokens_.bytes().size(),
               "{}: the sequences take {} bytes, but {:?} has {}; the files do not belong together", where_,
               end, name_ + ".bin", tokens_.bytes().size());
  size_ = static_cast<std::int64_t>(end / item);

  check_documents(index, sequences, boundaries);
}

void TokenFile::check_documents(std::span<const std::byte> index, std::uint64_t sequences,
                                std::uint64_t boundaries) {
  const std::uint64_t documents = kHeaderBytes + sequences * kSequenceBytes;
  std::int64_t last = 0;
  for (std::uint64_t i = 0; i < boundaries; ++i) {
    const auto boundary = load<std::int64_t>(index, documents + i * sizeof(std::int64_t));
    const bool fits = i == 0 ? boundary == 0 : boundary >= last;
    TETRAD_CHECK(fits && static_cast<std::uint64_t>(boundary) <= sequences,
                 "{}: document boundary {} is at sequence {}, which is out of order; the file is damaged",
                 where_, i, boundary);
    last = boundary;
  }
  TETRAD_CHECK(boundaries > 0 && static_cast<std::uint64_t>(last) == sequences,
               "{}: the last document ends at sequence {}, not at the last one ({}); the file is damaged",
               where_, last, sequences);
  documents_ = static_cast<std::int64_t>(boundaries) - 1;
}

std::vector<std::int64_t> TokenFile::document_ends() const {
  if (size_ == 0) return {};
  if (format_ != TokenFormat::megatron) return {size_};
  const MappedFile file(name_ + ".idx");
  const std::span<const std::byte> index = file.bytes();
  TETRAD_CHECK(index.size() >= kHeaderBytes, "{} became shorter while it was read; try again", where_);
  const auto sequences = load<std::uint64_t>(index, 18);
  const auto boundaries = load<std::uint64_t>(index, 26);
  const auto by_sequence = checked_mul(sequences, kSequenceBytes);
  const auto by_document = checked_mul(boundaries, sizeof(std::int64_t));
  const auto body = by_sequence && by_document ? checked_add(*by_sequence, *by_document) : std::nullopt;
  TETRAD_CHECK(body && *body == index.size() - kHeaderBytes && std::cmp_equal(boundaries, documents_ + 1),
               "{} changed while it was read; try again", where_);
  std::vector<std::int64_t> ends;
  std::uint64_t sequence = 0;
  std::int64_t tokens = 0;
  for (std::uint64_t i = 1; i < boundaries; ++i) {
    const auto end = std::min(
        sequences, load<std::uint64_t>(index, kHeaderBytes + *by_sequence + i * sizeof(std::int64_t)));
    const std::int64_t before = tokens;
    for (; sequence < end; ++sequence)
      tokens += load<std::int32_t>(index, kHeaderBytes + sequence * sizeof(std::int32_t));
    if (tokens > before) ends.push_back(tokens);
  }
  TETRAD_CHECK(tokens == size_, "{} changed while it was read; try again", where_);
  return ends;
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  if (first < 0 || first > size_ || std::ssize(tokens) > size_ - first)
    throw Error(fmt::format("{}: tokens {} to {} are beyond the end ({}); this is a bug of the caller",
                            where_, first, first + std::ssize(tokens), size_),
                ExitCode::failure);
  if (tokens.empty()) return;
  if (dtype_ == DType::i32) {
    std::memcpy(tokens.data(), data<std::int32_t>() + first, tokens.size_bytes());
    return;
  }
  std::copy_n(data<std::uint16_t>() + first, tokens.size(), tokens.begin());
}

template <typename Body>
void TokenFile::for_each_chunk(const Body& body) const {
  parallel_for(ceil_div(size_, kChunk), [&](std::int64_t chunk) {
    const std::int64_t first = chunk * kChunk;
    const auto count = static_cast<std::size_t>(std::min(kChunk, size_ - first));
    if (dtype_ == DType::i32)
      body(chunk, first, std::span(data<std::int32_t>() + first, count));
    else
      body(chunk, first, std::span(data<std::uint16_t>() + first, count));
  });
}

TokenFile::Range TokenFile::id_range() const {
  if (size_ == 0) return {};
  std::vector<Range> ranges(static_cast<std::size_t>(ceil_div(size_, kChunk)));
  for_each_chunk([&](std::int64_t chunk, std::int64_t, auto ids) {
    auto lowest = ids[0];
    auto highest = ids[0];
    for (const auto id : ids) {
      lowest = std::min(lowest, id);
      highest = std::max(highest, id);
    }
    ranges[static_cast<std::size_t>(chunk)] = {lowest, highest};
  });
  return {std::ranges::min(ranges, {}, &Range::lowest).lowest,
          std::ranges::max(ranges, {}, &Range::highest).highest};
}

void TokenFile::validate(std::int64_t vocab) const {
  const Range range = id_range();
  if (size_ == 0 || (range.lowest >= 0 && range.highest < vocab)) return;
  std::vector<std::int64_t> bad(static_cast<std::size_t>(ceil_div(size_, kChunk)), size_);
  for_each_chunk([&](std::int64_t chunk, std::int64_t first, auto ids) {
    const auto found = std::ranges::find_if(ids, [&](auto id) { return id < 0 || id >= vocab; });
    if (found != ids.end()) bad[static_cast<std::size_t>(chunk)] = first + (found - ids.begin());
  });
  const std::int64_t position = std::ranges::min(bad);
  std::int32_t id = 0;
  read(position, {&id, 1});
  fail(
      "{:?}: token {} has the id {}, but the vocabulary has only {} (ids go up to {}): the tokens were made "
      "with "
      "another tokenizer, or the model's vocab is too small",
      name_ + ".bin", position, id, vocab, range.highest);
}

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t vocab)
    : name_(token_file_name(path)),
      vocab_(vocab),
      bin_(name_ + ".bin"),
      idx_(name_ + ".idx"),
      json_(name_ + ".json"),
      counts_(static_cast<std::size_t>(vocab)) {}

void TokenFileWriter::append(std::span<const std::int32_t> tokens) {
  constexpr std::size_t kBuffer = std::size_t{4} << 20;
  constexpr std::int64_t kMaxSequence = std::int64_t{1} << 30;  // lengths are int32
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= vocab_)
      throw Error(
          fmt::format(
              "cannot write the token id {} to {:?}: the vocabulary has {}; this is a bug of the caller", id,
              name_, vocab_),
          ExitCode::failure);
    ++counts_[static_cast<std::size_t>(id)];
    if (vocab_ <= kMaxU16Vocab)
      append_value(buffer_, static_cast<std::uint16_t>(id));
    else
      append_value(buffer_, id);
    if (buffer_.size() >= kBuffer) flush_buffer();
    if (++tokens_ - sequence_begin_ == kMaxSequence) end_sequence();
  }
}

void TokenFileWriter::flush_buffer() {
  bin_.append(buffer_);
  buffer_.clear();
}

void TokenFileWriter::end_sequence() {
  if (tokens_ == sequence_begin_) return;
  lengths_.push_back(static_cast<std::int32_t>(tokens_ - sequence_begin_));
  sequence_begin_ = tokens_;
}

void TokenFileWriter::end_document() {
  end_sequence();
  if (tokens_ == document_begin_) return;
  document_ends_.push_back(std::ssize(lengths_));
  document_begin_ = tokens_;
}

TokenMetadata TokenFileWriter::commit(TokenMetadata metadata) {
  end_document();
  flush_buffer();
  const bool narrow = vocab_ <= kMaxU16Vocab;
  std::vector<std::byte> index;
  for (const char c : kMagic) append_value(index, c);
  append_value(index, kVersion);
  append_value(index, narrow ? kU16 : kI32);
  append_value(index, static_cast<std::uint64_t>(lengths_.size()));
  append_value(index, static_cast<std::uint64_t>(document_ends_.size() + 1));
  for (const std::int32_t length : lengths_) append_value(index, length);
  std::int64_t pointer = 0;
  for (const std::int32_t length : lengths_) {
    append_value(index, pointer);
    pointer += std::int64_t{length} * (narrow ? 2 : 4);
  }
  append_value(index, std::int64_t{0});
  for (const std::int64_t end : document_ends_) append_value(index, end);
  idx_.append(index);

  metadata.vocab = vocab_;
  metadata.tokens = tokens_;
  metadata.documents = documents();
  metadata.unigram_entropy = unigram_entropy(counts_);
  const std::string sidecar = to_json_text(metadata);
  json_.append(std::as_bytes(std::span(sidecar)));

  bin_.flush();
  idx_.flush();
  json_.flush();
  idx_.remove_target();
  bin_.commit();
  json_.commit();
  idx_.commit();
  return metadata;
}

}  // namespace tetrad
