// SPDX-License-Identifier: Apache-2.0
#pragma once
// Documents packed into sequences, as ops/documents.h describes them.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace tetrad::testing {

using DocumentStarts = std::vector<std::int32_t>;

/// Documents of one token, shorter than a convolution, that begin with a tile of 64 or one token after it,
/// and longer than two tiles. Each sequence has others.
inline DocumentStarts some_documents(std::int64_t batch, std::int64_t sequence) {
  constexpr std::array<std::int64_t, 12> kLengths = {3, 61, 1, 63, 130, 2, 40, 7, 20, 1, 1, 90};
  DocumentStarts starts;
  std::size_t document = 0;
  for (std::int64_t i = 0; i < batch; ++i)
    for (std::int64_t start = 0; start < sequence;) {
      const std::int64_t length = std::min(kLengths[document++ % kLengths.size()], sequence - start);
      starts.insert(starts.end(), static_cast<std::size_t>(length), static_cast<std::int32_t>(start));
      start += length;
    }
  return starts;
}

/// As operations take them: null where there are none.
inline const std::int32_t* pointer_to(const DocumentStarts& starts) {
  return starts.empty() ? nullptr : starts.data();
}

}  // namespace tetrad::testing
