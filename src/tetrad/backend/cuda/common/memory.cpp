// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/memory.h"

#include <array>
#include <numeric>

#include "tetrad/core/checked.h"
#include "tetrad/numerics/fp8.h"
#include "tetrad/ops/centring.h"

namespace tetrad::cuda {
namespace {

constexpr double kBf16Bytes = 2;
constexpr double kF32Bytes = 4;

double as_double(std::int64_t value) { return static_cast<double>(value); }
double bytes_of(DType dtype) { return bits_of(dtype) / 8.0; }
double elements(const OperandShape& operand) { return as_double(operand.rows) * as_double(operand.depth); }

/// Or `of` itself, where that is less.
std::int64_t smallest_divisor(std::int64_t of, std::int64_t at_least) {
  std::int64_t divisor = std::min(of, at_least);
  while (of % divisor != 0) ++divisor;
  return divisor;
}

bool is_fp8(const OperandShape& operand) { return operand.spec && operand.spec->format == Format::fp8; }

bool is_native_fp8(const OperandShape& operand) {
  return is_fp8(operand) &&
         fits_fp8_units(operand.spec->block, operand.rows, operand.depth, operand.transposed);
}

/// Whether the operand's values are exact in BF16.
bool is_bf16(const OperandShape& operand) {
  return operand.spec ? !has_f32_block_scales(*operand.spec) : operand.dtype == DType::bf16;
}

class CudaOperationMemory final : public OperationMemory {
 public:
  CudaOperationMemory() { need(workspace, as_double(kProductWorkspace)); }

  void product(const OperandShape& a, const OperandShape& b, DType out) override;
  void quantize(const QuantSpec& spec, std::int64_t count, bool statistics) override;
  void column_sums(std::int64_t rows, std::int64_t cols) override;
  void embedding(std::int64_t tokens, std::int64_t width) override;
  void attention(const AttentionShape& shape, DType dtype, bool by_parts) override;
  void mamba2(const Mamba2Shape& shape, std::int64_t kernel, DType dtype) override;
  void cross_entropy(std::int64_t tokens, std::int64_t vocab, DType dtype) override;
  void moments_on_host() override {
    need(moments, kMomentStages * 2 * kF32Bytes * as_double(kStagedMoments));
  }

  double bytes() const override;

 private:
  enum Slot : std::uint8_t {
    workspace,
    partial_sums,
    operand_a,
    operand_b,
    expanded,
    wide_out,
    attention_rows,
    scan,
    logits,
    tables,
    moments,
    slots
  };
  void need(Slot slot, double bytes) { bytes_[slot] = std::max(bytes_[slot], bytes); }
  void expand(const OperandShape& operand, Slot slot, bool to_f32);
  void arrange_fp8(const OperandShape& operand, Slot slot);

  std::array<double, slots> bytes_ = {};
};

/// Codes that lie as they are wanted need memory for their scales alone, in another order.
void CudaOperationMemory::arrange_fp8(const OperandShape& operand, Slot slot) {
  const Fp8ScaleLines scales = fp8_scale_lines(operand.spec->block, operand.rows, operand.depth);
  const double codes = operand.transposed ? elements(operand) : 0;
  need(slot, codes + kF32Bytes * as_double(scales.count) * as_double(scales.length));
}

void CudaOperationMemory::expand(const OperandShape& operand, Slot slot, bool to_f32) {
  const bool is_packed =
      operand.spec && is_bf16(operand) && (operand.form == Form::packed || is_fp8(operand));
  if (!to_f32) {
    if (is_packed) need(slot, kBf16Bytes * elements(operand));
    return;
  }
  if (operand.spec || operand.dtype != DType::f32) need(slot, kF32Bytes * elements(operand));
  if (is_packed) need(expanded, kBf16Bytes * elements(operand));
}

void CudaOperationMemory::product(const OperandShape& a, const OperandShape& b, DType out) {
  if (is_native_fp8(a) && is_native_fp8(b)) {
    arrange_fp8(a, operand_a);
    arrange_fp8(b, operand_b);
    return;
  }
  const bool to_f32 = !is_bf16(a) || !is_bf16(b);
  expand(a, operand_a, to_f32);
  expand(b, operand_b, to_f32);
  if (to_f32 && out == DType::bf16) need(wide_out, kF32Bytes * as_double(a.rows) * as_double(b.rows));
}

void CudaOperationMemory::quantize(const QuantSpec& spec, std::int64_t count, bool statistics) {
  if (!(statistics || depends_on_values(spec.scaling)) || spec.block.is_whole()) return;
  const double blocks = as_double(count) / as_double(spec.block.rows * spec.block.cols);
  need(partial_sums, blocks * (kF32Bytes + (depends_on_values(spec.scaling) ? 1 : 0)));
}

void CudaOperationMemory::column_sums(std::int64_t rows, std::int64_t cols) {
  need(partial_sums, kF32Bytes * as_double(ceil_div(rows, ColumnSums::kSlice)) * as_double(cols));
}

void CudaOperationMemory::embedding(std::int64_t tokens, std::int64_t width) {
  constexpr double kPiece = 32;              // sorted tokens that are summed up together
  constexpr double kSortBytesPerToken = 24;  // three lists, and what sorting them needs
  need(partial_sums, 2 * kF32Bytes * as_double(width) * as_double(tokens) / kPiece);
  need(tables, kSortBytesPerToken * as_double(tokens));
}

void CudaOperationMemory::attention(const AttentionShape& shape, DType dtype, bool by_parts) {
  const double rows = as_double(shape.batch * shape.sequence * shape.heads);
  need(attention_rows, kF32Bytes * rows);
  // cuDNN's gradients have a matrix [sequence, sequence] for every head, of as many sequences as the limit
  // lets through.
  if (dtype != DType::bf16 || !keeps_scores(shape)) return;
  const double whole = kBf16Bytes * rows * as_double(shape.sequence);
  const AttentionPart part = attention_part(shape.batch, shape.kv_heads, static_cast<std::int64_t>(whole),
                                            by_parts ? kAttentionWorkspaceByParts : kAttentionWorkspace);
  const double share = as_double(part.batch * part.kv_heads) / as_double(shape.batch * shape.kv_heads);
  need(attention_rows, share * (whole + kF32Bytes * rows));
}

void CudaOperationMemory::mamba2(const Mamba2Shape& shape, std::int64_t kernel, DType dtype) {
  constexpr std::int64_t kTile = 64;
  constexpr std::int64_t kUsualKernel = 4;
  const double tokens = as_double(shape.batch * shape.sequence);
  const std::int64_t chunk = std::min(shape.chunk, shape.sequence);
  const std::int64_t tile = std::min(kTile, chunk);
  const double tiles = as_double(shape.batch * ceil_div(shape.sequence, tile));
  const double tile_states = tiles * as_double(shape.inner()) * as_double(shape.state);
  if (dtype == DType::bf16 && has_tensor_core_scan(shape)) {
    need(scan, 2 * kBf16Bytes * tile_states);  // states and their gradients
  } else {
    const double steps = 4 * tokens * as_double(shape.heads);
    const double pairs = tiles * as_double(shape.heads * tile * tile);
    const double own_states = tile < chunk ? tile_states : 0;
    need(scan, kF32Bytes * (steps + own_states + tile_states + pairs));
  }
  if (kernel != kUsualKernel) need(scan, kF32Bytes * tokens * as_double(shape.conv_channels()));
  constexpr double kGatedPiece = 64;  // tokens that are summed up together
  need(partial_sums, kF32Bytes * as_double(shape.inner()) * tokens / kGatedPiece);
}

void CudaOperationMemory::cross_entropy(std::int64_t tokens, std::int64_t vocab, DType dtype) {
  need(logits, as_double(loss_chunk(tokens, vocab)) * as_double(vocab) * (kF32Bytes + bytes_of(dtype)));
}

double CudaOperationMemory::bytes() const { return std::accumulate(bytes_.begin(), bytes_.end(), 0.0); }

}  // namespace

bool fits_fp8_units(const BlockShape& block, std::int64_t rows, std::int64_t depth, bool transposed) {
  constexpr std::int64_t kUnit = 16;  // rows, and bytes of a line
  const bool rows_of_128 = block == BlockShape{1, fp8::kBlock} && !transposed;
  const bool squares = block == BlockShape{fp8::kBlock, fp8::kBlock};
  return (rows_of_128 || squares) && rows % kUnit == 0 && depth % kUnit == 0;
}

AttentionPart attention_part(std::int64_t batch, std::int64_t kv_heads, std::int64_t bytes,
                             std::int64_t limit) {
  const std::int64_t parts = ceil_div(bytes, limit);
  if (parts <= 1) return {batch, kv_heads};
  if (parts > batch) kv_heads /= smallest_divisor(kv_heads, ceil_div(parts, batch));
  return {batch / smallest_divisor(batch, parts), kv_heads};
}

Fp8ScaleLines fp8_scale_lines(const BlockShape& block, std::int64_t rows, std::int64_t depth) {
  constexpr std::int64_t kBlock = fp8::kBlock;
  constexpr std::int64_t kLine = 4;
  const std::int64_t depth_blocks = ceil_div(depth, kBlock);
  if (block.rows == 1) return {depth_blocks, rows};
  return {ceil_div(rows, kBlock), ceil_div(depth_blocks, kLine) * kLine};
}

std::unique_ptr<OperationMemory> operation_memory() { return std::make_unique<CudaOperationMemory>(); }

}  // namespace tetrad::cuda
