// SPDX-License-Identifier: Apache-2.0
// NVFP4 1x16 of one BF16 matrix in both directions: its rows as an operand, its columns packed or as an
// operand, or both packed. A warp takes 16 rows of 128 columns: first as patches (nvfp4_columns.cu), then
// as the blocks of its rows (nvfp4_rows.cu), which are in the first-level cache by then.

#include <algorithm>

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/backend/cuda/quantize/nvfp4_column_patches.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_row_blocks.cuh"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRegionCols = kWarp * kPatchCols;
static_assert(kRegionCols == static_cast<int>(RowBlocks::kRegionBlocks) * kGroup);

std::int64_t patches_of(const QuantProblem& column) {
  return column.rows / kPatchCols * (column.cols / kPatchRows);
}
std::int64_t regions_of(const QuantProblem& row) {
  return row.rows / kPatchRows * ceil_div(row.cols, kRegionCols);
}

template <Transform kTransform>
__global__ void __launch_bounds__(kThreads) find_amax_kernel(QuantProblem row, QuantProblem column) {
  const ColumnPatches patches(column);
  std::uint32_t plain = 0;
  std::uint32_t transformed = 0;
  for (std::uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < patches.count();
       i += gridDim.x * kThreads) {
    const Patch patch = patches.load(patches.place(i));
    plain = max(plain, find_plain_amax_of_patch(patch));
    transformed = max(transformed, find_amax_of_patch<kTransform>(patch));
  }
  raise_from_block(row.state, plain);
  raise_from_block(column.state, transformed);
}

/// Rows and columns as operands, rows alone, or codes of both.
enum class Forms : std::uint8_t { operands, row_operand, codes };

/// Whose block scales are chosen among candidates.
enum class Choices : std::uint8_t { none, rows, both };

template <Transform kTransform, bool kRowStochastic, bool kColumnStochastic, Forms kForms, Choices kChoices>
__global__ void __launch_bounds__(kThreads, 4) encode_kernel(QuantProblem row, QuantProblem column) {
  if (is_first_thread()) {
    *row.amax = row.tensor_amax();
    *column.amax = column.tensor_amax();
  }
  const auto strips = static_cast<std::uint32_t>((row.cols + kRegionCols - 1) / kRegionCols);
  const std::uint32_t regions = static_cast<std::uint32_t>(row.rows / kPatchRows) * strips;
  const std::uint32_t region = (blockIdx.x * kThreads + threadIdx.x) / kWarp;
  if (region >= regions) return;  // with its whole warp
  const std::uint32_t block_row = region / strips;
  const std::uint32_t strip = region - block_row * strips;

  const PatchPlace at{block_row, strip * kRegionCols + threadIdx.x % kWarp * kPatchCols};
  if (at.column < row.cols) {
    Patch patch = ColumnPatches(column).load(at);
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(column.tensor_amax(), column.scaling);
    encode_patch<kTransform, kColumnStochastic, kForms == Forms::operands, kChoices == Choices::both>(
        column, tensor, column.is_poisoned(), at, patch);
  }
  __syncwarp();

  const RowBlocks blocks(row);
  const RowEncoder<Transform::none, kRowStochastic, kForms != Forms::codes, kChoices != Choices::none>
      encoder(row, blocks);
#pragma unroll 1
  for (std::uint32_t r = 0; r < kPatchRows; r += RowBlocks::kRegionBatchRows) {
    const PairOfBlocks pair =
        blocks.pair_in_region(block_row * kPatchRows + r, strip * RowBlocks::kRegionBlocks);
    encoder.encode(pair, blocks.load(pair));
  }
}

template <Forms kForms>
using FormsConstant = std::integral_constant<Forms, kForms>;

/// Calls body(forms) with a constant.
template <typename Body>
void with_forms(const QuantProblem& row, const QuantProblem& column, const Body& body) {
  if (column.form == Form::operand)
    body(FormsConstant<Forms::operands>{});
  else if (row.form == Form::operand)
    body(FormsConstant<Forms::row_operand>{});
  else
    body(FormsConstant<Forms::codes>{});
}

template <Choices kChoices>
using ChoicesConstant = std::integral_constant<Choices, kChoices>;

/// Calls body(row stochastic, column stochastic, choices) with constants; kernels that choose are compiled
/// for operands that are rounded alike.
template <typename Body>
void with_rounding(const QuantProblem& row, const QuantProblem& column, const Body& body) {
  with_bool(row.is_stochastic(), [&](auto stochastic) {
    if (is_choice(column.scaling))
      body(stochastic, stochastic, ChoicesConstant<Choices::both>{});
    else if (is_choice(row.scaling))
      body(stochastic, stochastic, ChoicesConstant<Choices::rows>{});
    else
      with_bool(column.is_stochastic(), [&](auto column_stochastic) {
        body(stochastic, column_stochastic, ChoicesConstant<Choices::none>{});
      });
  });
}

/// Whether with_rounding() has constants for the two.
bool suits_choices(const QuantProblem& row, const QuantProblem& column) {
  if (!is_choice(row.scaling)) return !is_choice(column.scaling);
  return row.is_stochastic() == column.is_stochastic();
}

}  // namespace

bool suit_nvfp4_rows_and_columns(const QuantProblem& row, const QuantProblem& column) {
  return suits_nvfp4_rows(row) && suits_nvfp4_columns(column) && row.hadamard == 0 &&
         suits_choices(row, column) && (row.form == Form::operand || column.form == Form::packed) &&
         (column.hadamard == 0 || column.signs == kFixedSigns) && has_few_items(regions_of(row) * kWarp);
}

void find_nvfp4_row_and_column_amax(Device& device, const QuantProblem& row, const QuantProblem& column) {
  constexpr std::int64_t kBlocksPerMultiprocessor = 24;
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(patches_of(column), kThreads), 1,
                                                       kBlocksPerMultiprocessor * device.multiprocessors());
  with_bool(column.hadamard > 0, [&](auto transform) {
    constexpr Transform kTransform = transform ? Transform::hadamard16 : Transform::none;
    launch(device, blocks, kThreads, 0, find_amax_kernel<kTransform>, row, column);
  });
}

void encode_nvfp4_rows_and_columns(Device& device, const QuantProblem& row, const QuantProblem& column) {
  const std::int64_t blocks =
      std::max<std::int64_t>(1, ceil_div(regions_of(row) * kWarp, std::int64_t{kThreads}));
  with_bool(column.hadamard > 0, [&](auto transform) {
    constexpr Transform kTransform = transform ? Transform::hadamard16 : Transform::none;
    with_rounding(row, column, [&](auto row_stochastic, auto stochastic, auto choices) {
      with_forms(row, column, [&](auto forms) {
        launch(device, blocks, kThreads, 0,
               encode_kernel<kTransform, row_stochastic, stochastic, forms, choices>, row, column);
      });
    });
  });
}

}  // namespace tetrad::cuda
