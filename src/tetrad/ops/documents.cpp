// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/documents.h"

#include "tetrad/core/error.h"

namespace tetrad {

void check_document_starts(std::span<const std::int32_t> starts, std::int64_t sequence) {
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto t = static_cast<std::int64_t>(i) % sequence;
    TETRAD_CHECK(starts[i] == t || (t > 0 && starts[i] == starts[i - 1]),
                 "documents: token {} of a sequence cannot be of a document that begins at {}", t, starts[i]);
  }
}

}  // namespace tetrad
