// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tetrad/core/error.h"
#include "tetrad/core/hash.h"
#include "tetrad/tokenizer/byte_spelling.h"
#include "tetrad/tokenizer/nfc.h"

namespace tetrad {
namespace {

std::string shown(std::string_view token) { return fmt::format("{:?}", token.substr(0, 60)); }

}  // namespace

BpeDefinition byte_definition() {
  BpeDefinition definition;
  for (int byte = 0; byte < ByteTokenizer::kVocab; ++byte)
    definition.tokens.emplace_back(1, static_cast<char>(byte));
  return definition;
}

BpeTokenizer::BpeTokenizer(BpeDefinition definition, std::string_view where)
    : definition_(std::move(definition)), merges_(definition_.merges.size()) {
  TETRAD_CHECK(definition_.tokens.size() <= std::size_t{std::numeric_limits<std::int32_t>::max()},
               "{}: too many tokens", where);
  TETRAD_CHECK(!definition_.splits.empty(), "{}: no split; whole_split() is one that cuts nothing", where);
  cuttable_ = !definition_.add_prefix_space &&
              std::ranges::any_of(definition_.splits, [](const Split* s) { return !s->pattern.empty(); });
  index_added(where);
  index_tokens(where);
  index_merges(where);
  hash_ = compute_hash();
}

void BpeTokenizer::index_added(std::string_view where) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  texts_ = definition_.tokens;
  std::ranges::sort(definition_.added, {}, &AddedToken::id);
  for (const AddedToken& token : definition_.added) {
    TETRAD_CHECK(!token.content.empty(), "{}: an added token is empty; remove it", where);
    const auto id = static_cast<std::size_t>(token.id);
    const std::string bytes = unspell_bytes(token.content);
    const bool fits = token.id >= 0 && token.id < vocab() &&
                      (definition_.tokens[id].empty() || definition_.tokens[id] == bytes ||
                       definition_.tokens[id] == token.content);
    TETRAD_CHECK(fits, "{}: the added token {} has the id {}, which is another token", where,
                 shown(token.content), token.id);
    AddedToken& sought = (token.normalized ? normalized : raw).emplace_back(token);
    if (token.normalized && definition_.nfc) sought.content = normalize_nfc(token.content);
    // A decoder does not know that a token was added: where it can, it reads bytes.
    const std::string text = unspell_bytes(sought.content);
    texts_[id] = text.empty() ? sought.content : text;
    cuttable_ = cuttable_ && token.content.find_first_of(" \n", 1) == std::string::npos &&
                !token.single_word && !token.lstrip && !token.rstrip;
  }
  raw_added_ = AddedTokenFinder(std::move(raw));
  normalized_added_ = AddedTokenFinder(std::move(normalized));
  for (const std::string_view separator :
       {kEndOfText, std::string_view("<|end_of_text|>"), std::string_view("</s>")}) {
    const auto found = std::ranges::find(definition_.added, separator, &AddedToken::content);
    if (found != definition_.added.end() && !end_of_document_) end_of_document_ = found->id;
  }
}

void BpeTokenizer::index_tokens(std::string_view where) {
  for (std::size_t id = 0; id < definition_.tokens.size(); ++id)
    if (!definition_.tokens[id].empty())
      by_text_.emplace_back(definition_.tokens[id], static_cast<std::int32_t>(id));
  std::ranges::sort(by_text_);
  const auto twin = std::ranges::adjacent_find(by_text_, {}, [](const auto& entry) { return entry.first; });
  if (twin != by_text_.end()) fail("{}: the token {} occurs twice; remove one", where, shown(twin->first));

  byte_ids_.fill(-1);
  for (const auto& [token, id] : by_text_)
    if (token.size() == 1) byte_ids_[static_cast<std::uint8_t>(token[0])] = id;
  const auto missing = std::ranges::find(byte_ids_, -1);
  TETRAD_CHECK(missing == byte_ids_.end(),
               "{}: the byte {} has no token, so not every text could be encoded; this is no byte-level BPE",
               where, missing - byte_ids_.begin());
}

const std::int32_t* BpeTokenizer::id_of(std::string_view token) const {
  const auto found =
      std::ranges::lower_bound(by_text_, token, {}, [](const auto& entry) { return entry.first; });
  return found != by_text_.end() && found->first == token ? &found->second : nullptr;
}

const AddedToken* BpeTokenizer::added_with_id(std::int32_t id) const {
  const auto found = std::ranges::lower_bound(definition_.added, id, {}, &AddedToken::id);
  return found != definition_.added.end() && found->id == id ? &*found : nullptr;
}

bool BpeTokenizer::is_special(std::int32_t id) const {
  const AddedToken* const added = added_with_id(id);
  return added != nullptr && added->special;
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
    const std::int32_t* const result = id_of(joined);
    TETRAD_CHECK(result != nullptr, "{}: merge {} yields {}, which is not in the vocabulary", where, rank,
                 shown(joined));
    TETRAD_CHECK(merges_.insert(left, right, {static_cast<std::uint32_t>(rank), *result}),
                 "{}: merge {}, of {} and {}, occurs twice", where, rank, shown(token_of(left)),
                 shown(token_of(right)));
  }
}

std::string BpeTokenizer::compute_hash() const {
  Hash64 hash;
  const auto add_text = [&](std::string_view text) { hash.add(text.size()).add(text); };
  add_text("byte-level bpe");
  add_text(definition_.splits[0]->name);
  hash.add(definition_.ignore_merges ? 1 : 0);
  hash.add(definition_.tokens.size());
  for (std::size_t id = 0; id < definition_.tokens.size(); ++id) {
    const AddedToken* const added = added_with_id(static_cast<std::int32_t>(id));
    add_text(added != nullptr ? added->content : definition_.tokens[id]);
  }
  hash.add(definition_.merges.size());
  for (const auto& [left, right] : definition_.merges)
    hash.add(static_cast<std::uint64_t>(left)).add(static_cast<std::uint64_t>(right));
  hash.add(definition_.added.size());
  for (const AddedToken& token : definition_.added) hash.add(static_cast<std::uint64_t>(token.id));
  // What came later is added where it is used, so that token files keep the hash they were made with.
  for (std::size_t i = 1; i < definition_.splits.size(); ++i) add_text(definition_.splits[i]->name);
  if (definition_.add_prefix_space) add_text("prefix space");
  if (definition_.nfc) add_text("nfc");
  for (const AddedToken& token : definition_.added) {
    std::uint64_t flags = 0;
    std::uint64_t bit = 1;
    for (const bool flag : {token.single_word, token.lstrip, token.rstrip, token.normalized}) {
      if (flag) flags |= bit;
      bit <<= 1;
    }
    if (flags != 0) hash.add(static_cast<std::uint64_t>(token.id)).add(flags);
  }
  return fmt::format("{:016x}", hash.value());
}

std::string BpeTokenizer::description() const {
  std::string splits;
  for (const Split* split : definition_.splits)
    splits += fmt::format("{}{}", splits.empty() ? "" : " + ", split->name);
  return fmt::format("byte-level BPE, {} tokens, {} merges, {} split{}", vocab(), definition_.merges.size(),
                     splits, definition_.nfc ? ", NFC" : "");
}

std::vector<std::int32_t> BpeTokenizer::encode_word(std::string_view word) const {
  if (definition_.ignore_merges)
    if (const std::int32_t* const id = id_of(word)) return {*id};
  std::vector<std::int32_t> ids(word.size());
  std::ranges::transform(word, ids.begin(), [&](char c) { return byte_ids_[static_cast<std::uint8_t>(c)]; });
  merges_.apply(ids);
  return ids;
}

void BpeTokenizer::encode_pieces(std::string_view text, std::size_t split, WordCache& cache,
                                 std::vector<std::int32_t>& ids) const {
  const auto next = definition_.splits[split]->next;
  const bool is_last = split + 1 == definition_.splits.size();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = next(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    if (!is_last) {
      encode_pieces(word, split + 1, cache, ids);
    } else if (word.size() <= WordCache::kMaxWord) {
      const auto cached = cache.ids_of(word, [&](std::string_view w) { return encode_word(w); });
      ids.insert(ids.end(), cached.begin(), cached.end());
    } else {
      const std::vector<std::int32_t> fresh = encode_word(word);
      ids.insert(ids.end(), fresh.begin(), fresh.end());
    }
    begin = end;
  }
}

void BpeTokenizer::encode_plain(std::string_view text, WordCache& cache,
                                std::vector<std::int32_t>& ids) const {
  if (definition_.add_prefix_space && !text.starts_with(' '))
    encode_pieces(fmt::format(" {}", text), 0, cache, ids);
  else
    encode_pieces(text, 0, cache, ids);
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::unique_ptr<WordCache> cache;
  {
    const std::lock_guard lock(caches_mutex_);
    if (!caches_.empty()) {
      cache = std::move(caches_.back());
      caches_.pop_back();
    }
  }
  if (!cache) cache = std::make_unique<WordCache>();

  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4);
  const auto found = [&](std::int32_t id) { ids.push_back(id); };
  const auto plain = [&](std::string_view part) { encode_plain(part, *cache, ids); };
  raw_added_.cut(
      text,
      [&](std::string_view part) {
        if (definition_.nfc)
          normalized_added_.cut(normalize_nfc(part), plain, found);
        else
          normalized_added_.cut(part, plain, found);
      },
      found);

  const std::lock_guard lock(caches_mutex_);
  caches_.push_back(std::move(cache));
  return ids;
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids)
    if (id >= 0 && id < vocab()) text += texts_[static_cast<std::size_t>(id)];
  return text;
}

std::size_t BpeTokenizer::cut(std::string_view text, std::size_t at_least) const {
  return cuttable_ ? safe_cut(text, at_least) : text.size();
}

}  // namespace tetrad
