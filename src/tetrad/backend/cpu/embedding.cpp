// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/embedding.h"

#include "tetrad/backend/cpu/element.h"

namespace tetrad::cpu {
void embedding(Threads& threads, const EmbeddingForward& op) {
  const std::int64_t width = op.out.cols;
  check_tokens({op.tokens, static_cast<std::size_t>(op.out.rows)}, op.vocab);
  with_element(op.out.dtype, "embedding", [&]<typename T>(T) {
    parallel_ranges(threads, op.out.rows, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const float* in = op.table + op.tokens[row] * width;
        T* out = row_of<T>(op.out, row);
        for (std::int64_t i = 0; i < width; ++i) store(out[i], in[i]);
      }
    });
  });
}

void embedding(Threads& threads, const EmbeddingBackward& op) {
  // A token may stand in many rows, so the work is cut along the width: each piece sees all rows, in order.
  constexpr std::int64_t kColumns = 64;
  const std::int64_t width = op.dout.cols;
  check_tokens({op.tokens, static_cast<std::size_t>(op.dout.rows)}, op.vocab);
  with_element(op.dout.dtype, "embedding", [&]<typename T>(T) {
    parallel_ranges(threads, width, kColumns, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = 0; row < op.dout.rows; ++row) {
        const T* in = row_of<T>(op.dout, row);
        float* out = op.dtable + op.tokens[row] * width;
        for (std::int64_t i = first; i < last; ++i) out[i] += load(in[i]);
      }
    });
  });
}

}  // namespace tetrad::cpu
