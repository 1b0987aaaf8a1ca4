// SPDX-License-Identifier: Apache-2.0
#pragma once
// The contract of quantization: specification and options in, codes and scales out, statistics reported.
//
// A quantized matrix is described as its GEMM consumes it: [rows, cols] with the reduction dimension, and so
// the blocks, along cols. Quantizing "along axis 0" therefore means quantizing the transposed view of the
// input.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/core/buffer.h"
#include "tetrad/core/matrix.h"
#include "tetrad/numerics/hadamard.h"
#include "tetrad/numerics/philox.h"
#include "tetrad/numerics/scaling.h"
#include "tetrad/ops/amax.h"

namespace tetrad {

enum class Format : std::uint8_t { nvfp4, mxfp4, fp8 };

enum class Rounding : std::uint8_t {
  nearest,              //!< to nearest even
  stochastic,           //!< u = (r + 1/2)/256: unbiased but for what saturates
  stochastic_hardware,  //!< u = r/256, as software for Blackwell does it
};

/// Which elements share a scale, rows x cols; `whole` is one scale for the tensor (FP8 only).
struct BlockShape {
  std::int64_t rows = 1;
  std::int64_t cols = 16;
  static constexpr BlockShape whole() { return {0, 0}; }
  bool is_whole() const { return rows == 0; }
  friend constexpr bool operator==(const BlockShape&, const BlockShape&) = default;
};

/// How one operand of one GEMM is quantized. Recipes are tables of these.
struct QuantSpec {
  Format format = Format::nvfp4;
  BlockShape block = {1, 16};
  int axis = 1;  //!< the dimension of the input that blocks run along; 0 quantizes the transposed matrix
  Rounding rounding = Rounding::nearest;
  int hadamard = 0;  //!< size of the random Hadamard transform along the block axis; 0 = none
  SignMask signs = kFixedSigns;
  Scaling scaling = Scaling::standard;

  /// Whether codes or scales are drawn.
  bool is_random() const { return rounding != Rounding::nearest || scaling == Scaling::eden; }
  friend bool operator==(const QuantSpec&, const QuantSpec&) = default;
};

/// How the codes of a quantized [rows, cols] matrix lie in memory. Packed pairs are always neighbours along
/// cols.
enum class CodeOrder : std::uint8_t {
  row_major,  //!< bytes [rows, cols/2], scales [rows, cols/16]: what files and native kernels want
  col_major,  //!< bytes [cols/2, rows], scales [cols/16, rows]: what falls out of an input that lies
              //!< transposed, with no transpose paid; for consumers that accept any operand order
};

/// What is wanted of a quantized tensor.
enum class Form : std::uint8_t {
  packed,   //!< codes and scales
  operand,  //!< something to multiply with, soon: a backend may leave the values that its product reads, code
            //!< x block scale in BF16, in the place of the codes
};

/// How much of the tensor the statistics below `amax` are measured on.
enum class Telemetry : std::uint8_t {
  none,
  sampled,  //!< one tile of sixteen, the same ones always: about 1/16 of the cost, for training
  full,     //!< every element
};

struct QuantStats {
  float amax = 0;                      //!< largest magnitude that was quantized (after the transform)
  std::int64_t non_finite = 0;         //!< NaN or infinite values; if any, the result decodes to NaN
  std::int64_t blocks = 0;             //!< with a scale of their own
  std::int64_t zero_scale_blocks = 0;  //!< blocks that are not all zero, whose scale underflowed to zero
  std::int64_t measured = 0;           //!< elements behind the figures below
  std::int64_t flushed = 0;            //!< nonzero values that decode to zero
  std::int64_t saturated = 0;          //!< values clipped: beyond the largest code by more than f32 rounding
  double signal = 0;                   //!< sum of x^2
  double noise = 0;                    //!< sum of (x - decoded)^2
  double max_error = 0;                //!< max |x - decoded|

  double flushed_fraction() const { return measured == 0 ? 0.0 : double(flushed) / double(measured); }
  double saturated_fraction() const { return measured == 0 ? 0.0 : double(saturated) / double(measured); }
  /// Infinite when nothing was lost.
  double sqnr_db() const;
  /// Adds the statistics of another tensor, or of another part of this one.
  void merge(const QuantStats& other);
};

/// Where a part of a tensor lies in the whole, so that what is drawn for each element or block is the same
/// however the tensor is split.
struct PartOfTensor {
  std::int64_t first_row = 0;
  std::int64_t first_col = 0;   //!< a multiple of 16
  std::int64_t total_cols = 0;  //!< columns of the whole tensor; 0 = this part has all of them
};

struct QuantizeOptions {
  RandomStream random = {};  //!< used where QuantSpec::is_random()
  /// In the backend's memory: seed, step and microbatch are read from there when the operation runs, in the
  /// place of those in `random`. So that a recorded operation draws anew each time it is replayed.
  const RandomKey* key = nullptr;
  PartOfTensor part = {};
  CodeOrder order = CodeOrder::row_major;
  Form form = Form::packed;
  Telemetry telemetry = Telemetry::sampled;
  /// Tensor amax to scale by instead of the input's own: for a part of a tensor, or a scale shared between
  /// tensors.
  std::optional<float> amax = {};
  const AmaxReport* input = nullptr;  //!< amax of the input, if its producer reported it
  /// The input is several tensors, one below the other, with so many rows each: every one is quantized as it
  /// would be alone. Empty: it is one. Only where can_stack() and Backend::has_stacks() say so.
  std::span<const std::int64_t> stack = {};
};

/// A quantized [rows, cols] matrix.
struct QuantizedTensor {
  QuantSpec spec;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  CodeOrder order = CodeOrder::row_major;
  Form form = Form::packed;
  Buffer codes;   //!< E2M1: two per byte; E4M3: one per byte; BF16 if `form` is operand
  Buffer scales;  //!< see scale_rows(), scale_cols(); E4M3 or E8M0 bytes, or f32 for FP8
  /// Per-tensor amax, from which the NVFP4 tensor scale follows; NaN: the input was not finite. A device has
  /// it in memory of its own, and here only if telemetry was asked for.
  float amax = 0;
  Buffer device_amax;  //!< one f32

  /// One tensor of several in this matrix.
  struct Stacked {
    std::int64_t rows = 0;
    float amax = 0;
  };
  std::vector<Stacked> stack;  //!< from the first row on; empty: there is one, with `amax`

  std::int64_t code_bytes_per_row() const { return spec.format == Format::fp8 ? cols : cols / 2; }
  /// Scales of 16x16 blocks are stored for each of their rows, so that 1x16 and 16x16 are one layout; 128x128
  /// blocks store theirs once.
  std::int64_t scale_rows() const;
  std::int64_t scale_cols() const;

  /// What is left to alpha: the decoded operand times (numerator / denominator) is the tensor.
  struct Factor {
    float numerator = 1;
    float denominator = 1;
  };
  Factor alpha_factor() const { return alpha_factor(amax); }
  Factor alpha_factor(float amax_of_tensor) const;
};

/// Throws Error unless `spec` is consistent and a [rows, cols] matrix (as consumed) can be quantized so.
/// `what` names the tensor in the message.
void validate(const QuantSpec& spec, std::int64_t rows, std::int64_t cols, std::string_view what);

/// Whether tensors of any number of rows can be quantized in one matrix: no scale spans rows.
bool can_stack(const QuantSpec& spec);

/// Bytes of the codes and of the scales of a [rows, cols] matrix (as consumed) in Form::packed.
struct PackedSize {
  std::int64_t codes = 0;
  std::int64_t scales = 0;
};
PackedSize packed_size(const QuantSpec& spec, std::int64_t rows, std::int64_t cols);

/// The block shape that a format has when nothing is said.
BlockShape default_block(Format format);

std::string_view name_of(Format format);
std::string_view name_of(Rounding rounding);
/// "nearest", "4/6", "search", "eden", "floor", "up".
std::string_view name_of(Scaling scaling, Format format);
std::string name_of(const BlockShape& block);
Format format_from_name(std::string_view name);
Rounding rounding_from_name(std::string_view name);
/// Throws Error where the format has no such scaling.
Scaling scaling_from_name(std::string_view name, Format format);
BlockShape block_from_name(std::string_view name);

/// One line for people: "nvfp4 1x16, stochastic, hadamard 16".
std::string describe(const QuantSpec& spec);

}  // namespace tetrad
