// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which two neighbours may be joined, how soon, and into what; and the joining.

#include <cstdint>
#include <span>
#include <vector>

namespace tetrad {

class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = UINT32_MAX;

  struct Merge {
    std::uint32_t rank = kNoRank;  //!< smaller first; kNoRank: these two are never joined
    std::int32_t result = 0;
  };

  explicit MergeTable(std::size_t merges = 0);

  /// False if the pair is there already. At most as many as the constructor was given.
  bool insert(std::int32_t left, std::int32_t right, Merge merge);

  Merge find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

  /// Joins neighbours in `ids` until none can be joined: always the pair of lowest rank, the leftmost first.
  void apply(std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::uint64_t kEmpty = UINT64_MAX;  //!< no pair: ids are not negative

  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> shift_);
  }

  void apply_short(std::vector<std::int32_t>& ids) const;
  void apply_long(std::vector<std::int32_t>& ids) const;

  std::vector<Slot> slots_;  //!< open addressing, at most half full
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace tetrad
