// SPDX-License-Identifier: Apache-2.0
#pragma once
// Token embedding: rows of a table.

#include <cstdint>
#include <span>

#include "tetrad/core/matrix.h"

namespace tetrad {

struct EmbeddingForward {
  const std::int32_t* tokens = nullptr;  //!< [out.rows], each below `vocab`
  const float* table = nullptr;          //!< [vocab, out.cols], master weights
  std::int64_t vocab = 0;
  MutableMatrixView out;
};

/// Adds the rows of dout to the rows of dtable that the tokens name, in an order that follows from the tokens
/// alone.
struct EmbeddingBackward {
  const std::int32_t* tokens = nullptr;
  MatrixView dout;
  std::int64_t vocab = 0;
  float* dtable = nullptr;  //!< [vocab, dout.cols], added to
};

/// Throws Error that names the first id that is not in the vocabulary. For ids in the program's memory:
/// nobody looks at those on a device again.
void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab);

}  // namespace tetrad
