// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/prepare.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/core/hash.h"
#include "tetrad/core/threads.h"
#include "tetrad/data/token_file.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/mapped_file.h"

namespace tetrad {
namespace {

/// A document to be: a file or a part of one. It is mapped only while it is encoded, because there may be
/// more files than a process may map.
struct Document {
  const TextFile* file = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;  //!< bytes of the file
  bool heldout = false;

  std::uint64_t hash() const { return hash64(file->key); }
};

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::vector<Document> find_documents(const TextFiles& files, PrepareResult& result) {
  std::vector<Document> documents;
  for (const TextFile& file : files.files) {
    const MappedFile map(file.path);
    const std::string_view text = text_of(map);
    if (text.empty())
      ++result.empty;
    else if (text.find('\0') != std::string_view::npos)
      ++result.binary;
    else
      documents.push_back({&file, 0, text.size(), false});
  }
  return documents;
}

void hold_out_files(std::vector<Document>& documents, double fraction) {
  for (Document& document : documents)
    document.heldout = static_cast<double>(document.hash()) < fraction * 0x1p64;
  const auto by_hash = [](const Document& a, const Document& b) { return a.hash() < b.hash(); };
  const auto [lowest, highest] = std::minmax_element(documents.begin(), documents.end(), by_hash);
  if (std::ranges::none_of(documents, &Document::heldout)) lowest->heldout = true;
  if (std::ranges::all_of(documents, &Document::heldout)) highest->heldout = false;
}

/// Cuts at the end of a line if there is one, and not within a UTF-8 sequence.
void hold_out_end(std::vector<Document>& documents, double fraction) {
  const MappedFile map(documents[0].file->path);
  const std::string_view text = text_of(map).substr(0, documents[0].end);
  auto cut = static_cast<std::size_t>((1 - fraction) * static_cast<double>(text.size()));
  const std::size_t line_end = text.find('\n', cut);
  if (line_end != std::string_view::npos && line_end + 1 < text.size()) cut = line_end + 1;
  while (cut < text.size() && (static_cast<std::uint8_t>(text[cut]) & 0xC0u) == 0x80u) ++cut;
  if (cut == 0 || cut == text.size()) return;
  documents.push_back({documents[0].file, cut, text.size(), true});
  documents[0].end = cut;
}

/// Encodes documents in pieces on all threads and hands the tokens to their files in order. At no time are
/// more than a batch of pieces in memory.
class Encoder {
 public:
  Encoder(Threads& threads, const Tokenizer& tokenizer, bool special, TokenFileWriter& train,
          TokenFileWriter* heldout)
      : threads_(threads), tokenizer_(tokenizer), special_(special), train_(train), heldout_(heldout) {}

  void add(const Document& document, const std::function<void(std::int64_t)>& done) {
    const auto map = std::make_shared<const MappedFile>(document.file->path);
    const std::string_view text = text_of(*map);
    TETRAD_CHECK(text.size() >= document.end, "{:?} became shorter while it was read; try again",
                 document.file->path.native());
    bool is_first = true;
    for (std::string_view rest = text.substr(document.begin, document.end - document.begin); !rest.empty();) {
      const std::size_t end = tokenizer_.cut(rest, kPiece);
      const bool is_last = end == rest.size();
      pieces_.push_back(
          {map, rest.substr(0, end), document.heldout, std::exchange(is_first, false), is_last, {}});
      bytes_ += static_cast<std::int64_t>(end);
      rest.remove_prefix(end);
      if (bytes_ >= kBatch || pieces_.size() >= kMaxPieces) done(flush());
    }
  }

  /// Returns how many bytes of text were encoded.
  std::int64_t flush() {
    threads_.parallel_for(std::ssize(pieces_), [&](std::int64_t i) {
      Piece& piece = pieces_[static_cast<std::size_t>(i)];
      piece.ids = tokenizer_.encode(piece.text);
    });
    for (Piece& piece : pieces_) {
      TokenFileWriter& writer = piece.heldout ? *heldout_ : train_;
      if (piece.is_first && special_) writer.append(tokenizer_.prefix());
      if (piece.is_last && special_) append(piece.ids, tokenizer_.suffix());
      const auto end = tokenizer_.end_of_document();
      if (piece.is_last && end && (piece.ids.empty() || piece.ids.back() != *end)) piece.ids.push_back(*end);
      writer.append(piece.ids);
      if (piece.is_last) writer.end_document();
    }
    pieces_.clear();
    return std::exchange(bytes_, 0);
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;
  static constexpr std::int64_t kBatch = std::int64_t{32} << 20;

  static constexpr std::size_t kMaxPieces = 4096;

  struct Piece {
    std::shared_ptr<const MappedFile> file;  //!< keeps `text` there
    std::string_view text;
    bool heldout = false;
    bool is_first = false;  //!< first piece of its document
    bool is_last = false;
    std::vector<std::int32_t> ids;
  };

  static void append(std::vector<std::int32_t>& ids, std::span<const std::int32_t> more) {
    ids.insert(ids.end(), more.begin(), more.end());
  }

  Threads& threads_;
  const Tokenizer& tokenizer_;
  bool special_;
  TokenFileWriter& train_;
  TokenFileWriter* heldout_;
  std::vector<Piece> pieces_;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::string heldout_name(const std::string& name) { return token_file_name(name) + "-heldout"; }

PrepareResult prepare_tokens(Threads& threads, const TextFiles& files, const Tokenizer& tokenizer,
                             const PrepareOptions& options) {
  TETRAD_CHECK(options.heldout >= 0 && options.heldout < 1,
               "the held-out fraction cannot be {}; choose 0 to below 1", options.heldout);
  PrepareResult result;
  std::vector<Document> documents = find_documents(files, result);
  TETRAD_CHECK(!documents.empty(), "none of the {} files is text: {} are empty and {} hold zero bytes",
               files.files.size(), result.empty, result.binary);
  result.files = std::ssize(documents);
  if (options.heldout > 0 && documents.size() > 1)
    hold_out_files(documents, options.heldout);
  else if (options.heldout > 0)
    hold_out_end(documents, options.heldout);

  TokenMetadata train;
  train.tokenizer = options.tokenizer;
  train.tokenizer_hash = tokenizer.hash();
  TokenMetadata heldout = train;
  for (const Document& document : documents) {
    (document.heldout ? heldout : train).bytes += static_cast<std::int64_t>(document.end - document.begin);
    result.heldout_files += document.heldout ? 1 : 0;
  }
  const FoldersAbove folders(options.output);
  TokenFileWriter train_writer(options.output, tokenizer.vocab());
  std::optional<TokenFileWriter> heldout_writer;
  if (heldout.bytes > 0) heldout_writer.emplace(heldout_name(options.output), tokenizer.vocab());

  Encoder encoder(threads, tokenizer, options.special, train_writer,
                  heldout_writer ? &*heldout_writer : nullptr);
  std::int64_t done = 0;
  const auto report = [&](std::int64_t bytes) {
    done += bytes;
    if (options.progress) options.progress(done, train.bytes + heldout.bytes);
  };
  for (const Document& document : documents) encoder.add(document, report);
  report(encoder.flush());

  if (heldout_writer) result.heldout = heldout_writer->commit(heldout);
  result.train = train_writer.commit(train);
  return result;
}

}  // namespace tetrad
