#include "tetrad/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tetrad/core/error.h"
#include "tetrad/core/hash.h"

namespace tetrad {
namespace {

std::string shown(std::string_view token) { return fmt::format("{:?}", token.substr(0, 60)); }

/// Only for the cache: fast, and different on machines of other byte order.
std::uint64_t word_hash(std::string_view word) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15u;
  std::uint64_t hash = word.size() * kFactor;
  const auto mix = [&](std::uint64_t chunk) {
    hash = (hash ^ chunk) * kFactor;
    hash ^= hash >> 32;
  };
  std::uint64_t chunk = 0;
  while (word.size() >= sizeof(chunk)) {
    std::memcpy(&chunk, word.data(), sizeof(chunk));
    mix(chunk);
    word.remove_prefix(sizeof(chunk));
  }
  chunk = 0;
  std::memcpy(&chunk, word.data(), word.size());
  mix(chunk);
  return hash;
}

}  // namespace

/// What words encode to. Only a memory: results are the same without it.
class BpeTokenizer::Cache {
 public:
  static constexpr std::size_t kMaxWord = 64;  //!< bytes; longer ones hardly come twice

  Cache() : entries_(kSlots) {}

  /// The ids of `word`; `encode` finds them the first time. Valid until the next call.
  template <typename Encode>
  std::span<const std::int32_t> ids_of(std::string_view word, const Encode& encode) {
    const std::uint64_t hash = word_hash(word);
    std::size_t slot = hash & (kSlots - 1);
    for (; entries_[slot].used; slot = (slot + 1) & (kSlots - 1)) {
      const Entry& entry = entries_[slot];
      if (entry.hash == hash && std::string_view(words_).substr(entry.word, entry.word_size) == word)
        return std::span(ids_).subspan(entry.ids, entry.id_count);
    }
    if (2 * ++count_ > kSlots) {
      *this = Cache();
      slot = hash & (kSlots - 1);
    }
    const std::vector<std::int32_t> ids = encode(word);
    entries_[slot] = {hash,
                      static_cast<std::uint32_t>(words_.size()),
                      static_cast<std::uint32_t>(ids_.size()),
                      static_cast<std::uint16_t>(word.size()),
                      static_cast<std::uint16_t>(ids.size()),
                      true};
    words_.append(word);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return std::span(ids_).last(ids.size());
  }

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 16;

  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t word = 0;
    std::uint32_t ids = 0;
    std::uint16_t word_size = 0;
    std::uint16_t id_count = 0;
    bool used = false;
  };

  std::vector<Entry> entries_;
  std::size_t count_ = 0;
  std::string words_;
  std::vector<std::int32_t> ids_;
};

BpeTokenizer::BpeTokenizer(BpeDefinition definition, std::string_view where)
    : definition_(std::move(definition)), merges_(definition_.merges.size()) {
  TETRAD_CHECK(definition_.tokens.size() <= std::size_t{std::numeric_limits<std::int32_t>::max()},
               "{}: too many tokens", where);
  index_added(where);
  index_tokens(where);
  index_merges(where);
  hash_ = compute_hash();
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::index_added(std::string_view where) {
  added_ = definition_.added;
  for (const AddedToken& token : added_) {
    TETRAD_CHECK(!token.content.empty(), "{}: an added token is empty; remove it", where);
    const bool known = token.id >= 0 && token.id < vocab() &&
                       definition_.tokens[static_cast<std::size_t>(token.id)] == token.content;
    TETRAD_CHECK(known, "{}: the added token {} has the id {}, which is another token", where,
                 shown(token.content), token.id);
    starts_added_[static_cast<std::uint8_t>(token.content[0])] = true;
    cuttable_ = cuttable_ && token.content.find_first_of(" \n", 1) == std::string::npos;
  }
  std::ranges::stable_sort(added_, std::ranges::greater(),
                           [](const AddedToken& token) { return token.content.size(); });
  for (const std::string_view separator :
       {kEndOfText, std::string_view("<|end_of_text|>"), std::string_view("</s>")}) {
    const auto found = std::ranges::find(added_, separator, &AddedToken::content);
    if (found != added_.end() && !end_of_document_) end_of_document_ = found->id;
  }
}

void BpeTokenizer::index_tokens(std::string_view where) {
  std::vector<bool> is_added(definition_.tokens.size());
  for (const AddedToken& token : added_) is_added[static_cast<std::size_t>(token.id)] = true;
  for (std::size_t id = 0; id < definition_.tokens.size(); ++id)
    if (!definition_.tokens[id].empty() && !is_added[id])
      by_text_.emplace_back(definition_.tokens[id], static_cast<std::int32_t>(id));
  std::ranges::sort(by_text_);
  const auto twin = std::ranges::adjacent_find(by_text_, {}, [](const auto& entry) { return entry.first; });
  if (twin != by_text_.end()) fail("{}: the token {} is there twice; remove one", where, shown(twin->first));

  byte_ids_.fill(-1);
  for (const auto& [token, id] : by_text_)
    if (token.size() == 1) byte_ids_[static_cast<std::uint8_t>(token[0])] = id;
  const auto missing = std::ranges::find(byte_ids_, -1);
  TETRAD_CHECK(missing == byte_ids_.end(),
               "{}: the byte {} has no token, so not every text could be encoded; this is no byte-level BPE",
               where, missing - byte_ids_.begin());
}

void BpeTokenizer::index_merges(std::string_view where) {
  for (std::size_t rank = 0; rank < definition_.merges.size(); ++rank) {
    const auto [left, right] = definition_.merges[rank];
    const auto token_of = [&](std::int32_t id) -> const std::string& {
      const bool known = id >= 0 && id < vocab() && !definition_.tokens[static_cast<std::size_t>(id)].empty();
      if (!known) fail("{}: merge {} refers to the id {}, which no token has", where, rank, id);
      return definition_.tokens[static_cast<std::size_t>(id)];
    };
    const std::string joined = token_of(left) + token_of(right);
    const auto found =
        std::ranges::lower_bound(by_text_, joined, {}, [](const auto& entry) { return entry.first; });
    TETRAD_CHECK(found != by_text_.end() && found->first == joined,
                 "{}: merge {} yields {}, which is not in the vocabulary", where, rank, shown(joined));
    TETRAD_CHECK(merges_.insert(left, right, {static_cast<std::uint32_t>(rank), found->second}),
                 "{}: merge {}, of {} and {}, is there twice", where, rank, shown(token_of(left)),
                 shown(token_of(right)));
  }
}

std::string BpeTokenizer::compute_hash() const {
  Hash64 hash;
  const auto add_text = [&](std::string_view text) { hash.add(text.size()).add(text); };
  add_text("byte-level bpe");
  add_text(definition_.split->name);
  hash.add(definition_.ignore_merges ? 1 : 0);
  hash.add(definition_.tokens.size());
  for (const std::string& token : definition_.tokens) add_text(token);
  hash.add(definition_.merges.size());
  for (const auto& [left, right] : definition_.merges)
    hash.add(static_cast<std::uint64_t>(left)).add(static_cast<std::uint64_t>(right));
  hash.add(definition_.added.size());
  for (const AddedToken& token : definition_.added) hash.add(static_cast<std::uint64_t>(token.id));
  return fmt::format("{:016x}", hash.value());
}

std::string BpeTokenizer::description() const {
  return fmt::format("byte-level BPE, {} tokens, {} merges, {} split", vocab(), definition_.merges.size(),
                     definition_.split->name);
}

const AddedToken* BpeTokenizer::added_at(std::string_view text, std::size_t begin) const {
  for (const AddedToken& token : added_)
    if (text.compare(begin, token.content.size(), token.content) == 0) return &token;
  return nullptr;
}

std::vector<std::int32_t> BpeTokenizer::encode_word(std::string_view word) const {
  if (definition_.ignore_merges) {
    const auto found =
        std::ranges::lower_bound(by_text_, word, {}, [](const auto& entry) { return entry.first; });
    if (found != by_text_.end() && found->first == word) return {found->second};
  }
  std::vector<std::int32_t> ids(word.size());
  std::ranges::transform(word, ids.begin(), [&](char c) { return byte_ids_[static_cast<std::uint8_t>(c)]; });
  merges_.apply(ids);
  return ids;
}

void BpeTokenizer::encode_plain(std::string_view text, Cache& cache, std::vector<std::int32_t>& ids) const {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = definition_.split->next(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    if (word.size() <= Cache::kMaxWord) {
      const auto cached = cache.ids_of(word, [&](std::string_view w) { return encode_word(w); });
      ids.insert(ids.end(), cached.begin(), cached.end());
    } else {
      const std::vector<std::int32_t> fresh = encode_word(word);
      ids.insert(ids.end(), fresh.begin(), fresh.end());
    }
    begin = end;
  }
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::unique_ptr<Cache> cache;
  {
    const std::lock_guard lock(caches_mutex_);
    if (!caches_.empty()) {
      cache = std::move(caches_.back());
      caches_.pop_back();
    }
  }
  if (!cache) cache = std::make_unique<Cache>();

  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4);
  std::size_t plain = 0;  // where the text that is not encoded yet begins
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* const added =
        starts_added_[static_cast<std::uint8_t>(text[i])] ? added_at(text, i) : nullptr;
    if (added == nullptr) {
      ++i;
      continue;
    }
    encode_plain(text.substr(plain, i - plain), *cache, ids);
    ids.push_back(added->id);
    i += added->content.size();
    plain = i;
  }
  encode_plain(text.substr(plain), *cache, ids);

  const std::lock_guard lock(caches_mutex_);
  caches_.push_back(std::move(cache));
  return ids;
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const bool known = id >= 0 && id < vocab() && !definition_.tokens[static_cast<std::size_t>(id)].empty();
    text +=
        known ? std::string_view(definition_.tokens[static_cast<std::size_t>(id)]) : kReplacementCharacter;
  }
  return text;
}

std::size_t BpeTokenizer::cut(std::string_view text, std::size_t at_least) const {
  return cuttable_ ? safe_cut(text, at_least) : text.size();
}

}  // namespace tetrad
