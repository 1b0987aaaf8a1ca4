// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <tuple>

namespace tetrad {

MergeTable::MergeTable(std::size_t merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(2 * merges, 16));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

bool MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  std::size_t i = slot_of(key);
  for (; slots_[i].key != kEmpty; i = (i + 1) & mask_)
    if (slots_[i].key == key) return false;
  slots_[i] = {key, merge};
  return true;
}

void MergeTable::apply(std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kShort = 128;
  if (ids.size() <= kShort)
    apply_short(ids);
  else
    apply_long(ids);
}

/// Quadratic, but without overhead: nearly all words have a few bytes.
void MergeTable::apply_short(std::vector<std::int32_t>& ids) const {
  if (ids.size() < 2) return;
  std::vector<Merge> pairs(ids.size() - 1);  // pairs[i]: ids[i] and ids[i + 1]
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = find(ids[i], ids[i + 1]);
  while (!pairs.empty()) {
    const auto best = std::ranges::min_element(pairs, {}, &Merge::rank);
    if (best->rank == kNoRank) return;
    const auto i = best - pairs.begin();
    ids[static_cast<std::size_t>(i)] = best->result;
    ids.erase(ids.begin() + i + 1);
    pairs.erase(best);
    const auto at = static_cast<std::size_t>(i);
    if (at > 0) pairs[at - 1] = find(ids[at - 1], ids[at]);
    if (at < pairs.size()) pairs[at] = find(ids[at], ids[at + 1]);
  }
}

/// A queue of pairs over a linked list: n log n, so that a megabyte of one letter takes no hours.
void MergeTable::apply_long(std::vector<std::int32_t>& ids) const {
  constexpr std::int32_t kGone = -1;
  const std::size_t none = ids.size();
  std::vector<std::size_t> previous(ids.size());
  std::vector<std::size_t> next(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    previous[i] = i == 0 ? none : i - 1;
    next[i] = i + 1;
  }
  using Candidate = std::tuple<std::uint32_t, std::size_t, std::int32_t, std::int32_t>;  // rank, place, pair
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::size_t i) {
    if (i == none || next[i] == none) return;
    const Merge merge = find(ids[i], ids[next[i]]);
    if (merge.rank != kNoRank) queue.emplace(merge.rank, i, ids[i], ids[next[i]]);
  };
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) consider(i);
  while (!queue.empty()) {
    const auto [rank, i, left, right] = queue.top();
    queue.pop();
    // The pair may have changed since it was queued; it was queued again then.
    if (ids[i] != left || next[i] == none || ids[next[i]] != right) continue;
    const std::size_t removed = next[i];
    ids[i] = find(left, right).result;
    ids[removed] = kGone;
    next[i] = next[removed];
    if (next[i] != none) previous[next[i]] = i;
    consider(previous[i]);
    consider(i);
  }
  std::erase(ids, kGone);
}

}  // namespace tetrad
