// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/data/megatron_index.h"
#include "tetrad/io/sha256.h"

namespace tetrad {
namespace {

constexpr std::int64_t kMaxU16Vocab = 65536;
constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // tokens that one thread looks at in one go

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
  const MegatronIndex checked = check_megatron_index(index.bytes(), tokens_.size(), name_);
  dtype_ = checked.dtype;
  size_ = checked.tokens;
  documents_ = checked.documents;
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
  std::vector<std::byte> head(std::min<std::size_t>(kTokenHeadBytes, tokens_.size()));
  tokens_.read(0, head);
  std::optional<TokenLayout> layout = llmc_layout(head, tokens_.size(), where_);
  TETRAD_CHECK(layout || path.ends_with(".bin"),
               "{} has no {:?} beside it, and no header of llm.c: name it with .bin if it holds tokens of 16 "
               "bits and nothing else (nanoGPT)",
               where_, name_ + ".idx");
  if (!layout) {
    std::error_code ignored;
    TETRAD_CHECK(!std::filesystem::exists(name_ + ".json", ignored),
                 "{} has a .json but no .idx: one of three files is lost; make them again", where_);
    layout = raw_layout(head, tokens_.size(), where_);
  }
  format_ = layout->format;
  dtype_ = layout->dtype;
  begin_ = layout->begin;
  size_ = layout->tokens;
  documents_ = size_ > 0 ? 1 : 0;
}

template <typename T>
void TokenFile::read_raw(std::int64_t first, std::span<T> tokens) const {
  tokens_.read(begin_ + static_cast<std::size_t>(first) * sizeof(T), std::as_writable_bytes(tokens));
}

std::vector<std::int64_t> TokenFile::document_ends() const {
  if (size_ == 0) return {};
  if (format_ != TokenFormat::megatron) return {size_};
  const MappedFile index(name_ + ".idx");
  const MegatronIndex again = check_megatron_index(index.bytes(), tokens_.size(), name_);
  TETRAD_CHECK(again == MegatronIndex({dtype_, size_, documents_}), "{} changed while it was read; try again",
               where_);
  return megatron_document_ends(index.bytes());
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  if (first < 0 || first > size_ || std::ssize(tokens) > size_ - first)
    throw Error(fmt::format("{}: tokens {} to {} are beyond the end ({}); this is a bug of the caller",
                            where_, first, first + std::ssize(tokens), size_),
                ExitCode::failure);
  if (tokens.empty()) return;
  if (dtype_ == DType::i32) {
    read_raw(first, tokens);
    return;
  }
  std::vector<std::uint16_t> narrow(tokens.size());
  read_raw(first, std::span(narrow));
  std::ranges::copy(narrow, tokens.begin());
}

template <typename Body>
void TokenFile::for_each_chunk(Threads& threads, const Body& body) const {
  threads.parallel_for(ceil_div(size_, kChunk), [&](std::int64_t chunk) {
    const std::int64_t first = chunk * kChunk;
    const auto count = static_cast<std::size_t>(std::min(kChunk, size_ - first));
    const auto use = [&]<typename T>(std::vector<T> ids) {
      read_raw(first, std::span(ids));
      body(chunk, first, std::span<const T>(ids));
    };
    if (dtype_ == DType::i32)
      use(std::vector<std::int32_t>(count));
    else
      use(std::vector<std::uint16_t>(count));
  });
}

TokenFile::Survey TokenFile::survey(Threads& threads) const {
  const auto chunks = static_cast<std::size_t>(ceil_div(size_, kChunk));
  std::vector<Range> ranges(chunks);
  std::vector<std::string> hashes(chunks);
  for_each_chunk(threads, [&](std::int64_t chunk, std::int64_t, auto ids) {
    const auto [lowest, highest] = std::ranges::minmax(ids);
    ranges[static_cast<std::size_t>(chunk)] = {lowest, highest};
    hashes[static_cast<std::size_t>(chunk)] = sha256_hex(std::as_bytes(ids));
  });
  Sha256 hash;
  const auto add = [&](std::string_view text) { hash.update(std::as_bytes(std::span(text))); };
  add(fmt::format("{} tokens of {}\n", size_, name_of(dtype_)));
  for (const std::string& one : hashes) add(one);
  const std::vector<std::int64_t> ends = document_ends();
  hash.update(std::as_bytes(std::span(ends)));
  if (size_ == 0) return {{}, hash.hex()};
  return {{std::ranges::min(ranges, {}, &Range::lowest).lowest,
           std::ranges::max(ranges, {}, &Range::highest).highest},
          hash.hex()};
}

std::string TokenFile::validate(Threads& threads, std::int64_t vocab) const {
  const auto [range, hash] = survey(threads);
  if (size_ == 0 || (range.lowest >= 0 && range.highest < vocab)) return hash;
  std::vector<std::int64_t> bad(static_cast<std::size_t>(ceil_div(size_, kChunk)), size_);
  for_each_chunk(threads, [&](std::int64_t chunk, std::int64_t first, auto ids) {
    const auto found = std::ranges::find_if(ids, [&](auto id) { return id < 0 || id >= vocab; });
    if (found != ids.end()) bad[static_cast<std::size_t>(chunk)] = first + (found - ids.begin());
  });
  const std::int64_t position = std::ranges::min(bad);
  std::int32_t id = 0;
  read(position, {&id, 1});
  // Those of llm.c are unsigned; none beyond 2^31 - 1 can be of a vocabulary.
  const std::int64_t shown = format_ == TokenFormat::llmc ? static_cast<std::uint32_t>(id) : std::int64_t{id};
  fail(
      "{:?}: token {} has the id {}, but the vocabulary has only {} (ids go up to {}): the tokens were made "
      "with another tokenizer, or the model's vocab is too small",
      name_ + ".bin", position, shown, vocab, std::max(shown, range.highest));
}

TokenFileWriter::TokenFileWriter(const std::string& path, std::int64_t vocab)
    : name_(token_file_name(path)),
      vocab_(vocab),
      dtype_(vocab <= kMaxU16Vocab ? DType::u16 : DType::i32),
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
    const auto narrow = static_cast<std::uint16_t>(id);
    const auto bytes =
        dtype_ == DType::u16 ? std::as_bytes(std::span(&narrow, 1)) : std::as_bytes(std::span(&id, 1));
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
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
  const std::vector<std::byte> index = megatron_index_bytes(dtype_, lengths_, document_ends_);
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
