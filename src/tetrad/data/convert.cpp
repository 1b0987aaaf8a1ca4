// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/convert.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/data/token_file.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {
namespace {

constexpr std::int64_t kMaxConverted = std::int64_t{1} << 24;  // tokens of a vocabulary

/// What is known about the tokens of all files, as far as they agree.
TokenMetadata common_metadata(std::span<const TokenFile> files) {
  TokenMetadata common;
  bool bytes_known = true;
  for (const TokenFile& file : files) {
    const auto& metadata = file.metadata();
    if (!metadata) {
      bytes_known = false;
      continue;
    }
    TETRAD_CHECK(common.tokenizer_hash.empty() || metadata->tokenizer_hash.empty() ||
                     common.tokenizer_hash == metadata->tokenizer_hash,
                 "{:?} was made with another tokenizer ({}) than the files before it ({})", file.name(),
                 metadata->tokenizer_hash, common.tokenizer_hash);
    if (!metadata->tokenizer_hash.empty()) {
      common.tokenizer = metadata->tokenizer;
      common.tokenizer_hash = metadata->tokenizer_hash;
    }
    common.vocab = std::max(common.vocab, metadata->vocab);
    common.bytes += metadata->bytes;
  }
  if (!bytes_known) common.bytes = 0;
  return common;
}

std::int64_t vocab_for(Threads& threads, std::span<const TokenFile> files, const ConvertOptions& options,
                       std::int64_t stated) {
  std::int64_t vocab = options.vocab;
  if (vocab == 0 && options.tokenizer != nullptr) vocab = options.tokenizer->vocab();
  if (vocab == 0) vocab = stated;
  if (vocab == 0)
    for (const TokenFile& file : files) vocab = std::max(vocab, file.survey(threads).range.highest + 1);
  vocab = std::max(vocab, std::int64_t{1});
  TETRAD_CHECK(vocab <= kMaxConverted,
               "ids up to {} are too large for a vocabulary (at most {}); is this a token file?", vocab - 1,
               kMaxConverted);
  return vocab;
}

/// The output would replace the input, which could not be restored from it.
void refuse_same_file(const std::string& input, const std::string& output) {
  std::error_code ignored;
  TETRAD_CHECK(!std::filesystem::equivalent(token_file_name(input) + ".bin", token_file_name(output) + ".bin",
                                            ignored),
               "{:?} would be overwritten by what it is converted to; choose another output", input);
}

/// Copies one file, and ends documents where it does or where a token says so.
void copy(const TokenFile& file, TokenFileWriter& writer, std::optional<std::int32_t> document_end,
          const std::function<void(std::int64_t)>& done) {
  std::vector<std::int32_t> buffer(std::size_t{1} << 20);
  std::int64_t first = 0;
  for (const std::int64_t end : file.document_ends()) {
    while (first < end) {
      std::span<std::int32_t> part =
          std::span(buffer).first(static_cast<std::size_t>(std::min(end - first, std::ssize(buffer))));
      file.read(first, part);
      first += std::ssize(part);
      done(std::ssize(part));
      while (document_end) {
        const auto found = std::ranges::find(part, *document_end);
        if (found == part.end()) break;
        const auto size = static_cast<std::size_t>(found - part.begin()) + 1;
        writer.append(part.first(size));
        writer.end_document();
        part = part.subspan(size);
      }
      writer.append(part);
    }
    writer.end_document();
  }
}

}  // namespace

TokenMetadata convert_tokens(Threads& threads, std::span<const std::string> inputs,
                             const ConvertOptions& options) {
  TETRAD_CHECK(!inputs.empty(), "no token file is named");
  std::vector<TokenFile> files;
  std::int64_t total = 0;
  for (const std::string& input : inputs) {
    refuse_same_file(input, options.output);
    total += files.emplace_back(input).size();
  }
  TokenMetadata metadata = common_metadata(files);
  const std::int64_t vocab = vocab_for(threads, files, options, metadata.vocab);
  for (const TokenFile& file : files) file.validate(threads, vocab);
  if (options.tokenizer != nullptr) {
    TETRAD_CHECK(metadata.tokenizer_hash.empty() || metadata.tokenizer_hash == options.tokenizer->hash(),
                 "{:?} is another tokenizer ({}) than the one that made the tokens ({})",
                 options.tokenizer_spec, options.tokenizer->hash(), metadata.tokenizer_hash);
    metadata.tokenizer = options.tokenizer_spec;
    metadata.tokenizer_hash = options.tokenizer->hash();
  }
  const FoldersAbove folders(options.output);
  TokenFileWriter writer(options.output, vocab);
  std::int64_t done = 0;
  for (const TokenFile& file : files)
    copy(file, writer, options.document_end, [&](std::int64_t tokens) {
      done += tokens;
      if (options.progress) options.progress(done, total);
    });
  return writer.commit(std::move(metadata));
}

}  // namespace tetrad
