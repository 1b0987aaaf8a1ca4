// SPDX-License-Identifier: Apache-2.0
#pragma once
// What words encode to. Only a memory: results are the same without it.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tetrad {

/// For one thread at a time.
class WordCache {
 public:
  static constexpr std::size_t kMaxWord = 64;  //!< bytes; longer ones hardly come twice

  /// The ids of `word`; `encode` finds them the first time. Valid until the next call.
  template <typename Encode>
  std::span<const std::int32_t> ids_of(std::string_view word, const Encode& encode) {
    const std::uint64_t hash = hash_of(word);
    for (std::size_t slot = hash & mask(); entries_[slot].used; slot = (slot + 1) & mask()) {
      const Entry& entry = entries_[slot];
      if (entry.hash == hash && std::string_view(words_).substr(entry.word, entry.word_size) == word)
        return std::span(ids_).subspan(entry.ids, entry.id_count);
    }
    if (2 * ++count_ > entries_.size()) make_room();
    const std::vector<std::int32_t> ids = encode(word);
    insert({hash, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(ids_.size()),
            static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size()), true});
    words_.append(word);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return std::span(ids_).last(ids.size());
  }

 private:
  static constexpr std::size_t kFirstSlots = std::size_t{1} << 10;
  static constexpr std::size_t kMostSlots = std::size_t{1} << 16;

  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t word = 0;
    std::uint32_t ids = 0;
    std::uint16_t word_size = 0;
    std::uint16_t id_count = 0;
    bool used = false;
  };

  std::size_t mask() const { return entries_.size() - 1; }

  void insert(const Entry& entry) {
    std::size_t slot = entry.hash & mask();
    while (entries_[slot].used) slot = (slot + 1) & mask();
    entries_[slot] = entry;
  }

  /// Grows, or forgets everything when it is large enough.
  void make_room() {
    if (entries_.size() >= kMostSlots) {
      *this = WordCache();
      count_ = 1;
      return;
    }
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(4 * entries_.size()));
    for (const Entry& entry : old)
      if (entry.used) insert(entry);
  }

  /// Fast, and different on machines of other byte order.
  static std::uint64_t hash_of(std::string_view word) {
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

  std::vector<Entry> entries_ = std::vector<Entry>(kFirstSlots);  //!< at most half are used
  std::size_t count_ = 0;
  std::string words_;
  std::vector<std::int32_t> ids_;
};

}  // namespace tetrad
