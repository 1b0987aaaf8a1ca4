// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/quantize_stack.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include "tetrad/backend/cpu/quantize.h"
#include "tetrad/core/error.h"
#include "tetrad/core/tensor.h"

namespace tetrad::cpu {
namespace {

/// Tensors of more rows have enough work for all threads; the others are shared among them.
constexpr std::int64_t kFewRows = 32;

Buffer part_of(Buffer& whole, std::int64_t bytes_per_row, std::int64_t first_row, std::int64_t rows) {
  return Buffer::borrow(whole.span<std::byte>().subspan(static_cast<std::size_t>(first_row * bytes_per_row),
                                                        static_cast<std::size_t>(rows * bytes_per_row)));
}

}  // namespace

QuantStats quantize_stack(Threads& threads, const MatrixView& x, const QuantSpec& spec,
                          const QuantizeOptions& options, QuantizedTensor& out) {
  TETRAD_CHECK(can_stack(spec) && options.order == CodeOrder::row_major,
               "quantize: {} cannot be stacked: a scale would be of several tensors", describe(spec));
  TETRAD_CHECK(std::reduce(options.stack.begin(), options.stack.end()) == x.rows,
               "quantize: the tensors of a stack must have {} rows together", x.rows);
  const PackedSize size = packed_size(spec, x.rows, x.cols);
  const auto reuse = [](Buffer& buffer, std::int64_t bytes) {
    if (!buffer.refit(static_cast<std::size_t>(bytes))) buffer = Buffer(static_cast<std::size_t>(bytes));
  };
  reuse(out.codes, size.codes);
  reuse(out.scales, size.scales);
  out.spec = spec;
  out.rows = x.rows;
  out.cols = x.cols;
  out.order = options.order;
  out.stack.resize(options.stack.size());
  std::vector<std::int64_t> first_rows(options.stack.size());
  std::exclusive_scan(options.stack.begin(), options.stack.end(), first_rows.begin(), std::int64_t{0});

  QuantizeOptions alone = options;
  alone.stack = {};
  std::vector<QuantStats> stats(options.stack.size());
  const auto quantize_one = [&](std::size_t i) {
    const std::int64_t first = first_rows[i];
    const std::int64_t rows = options.stack[i];
    QuantizedTensor tensor;
    tensor.codes = part_of(out.codes, size.codes / x.rows, first, rows);
    tensor.scales = part_of(out.scales, size.scales / x.rows, first, rows);
    stats[i] = quantize(threads, tetrad::rows(x, first, rows), spec, alone, tensor);
    out.stack[i] = {rows, tensor.amax};
  };
  for (std::size_t i = 0; i < stats.size(); ++i)
    if (options.stack[i] > kFewRows) quantize_one(i);
  threads.parallel_for(std::ssize(stats), [&](std::int64_t i) {
    if (options.stack[static_cast<std::size_t>(i)] <= kFewRows) quantize_one(static_cast<std::size_t>(i));
  });
  QuantStats all;
  for (const QuantStats& one : stats) all.merge(one);
  out.amax = all.amax;
  return all;
}

}  // namespace tetrad::cpu
