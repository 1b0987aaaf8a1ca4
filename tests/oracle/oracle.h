// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the quantizers must produce, computed a second time from docs/numerics.md alone.
//
// The oracle is slow and plain on purpose and shares no code with src/: it works on doubles, rounds to f32
// where the definition does arithmetic in f32, and casts by searching a table of the format's values. An
// agreement between it and a backend is then an agreement of two readings of the page. Compile it without
// contraction and without fast-math.

#include <array>
#include <cstdint>
#include <vector>

namespace tetrad::oracle {

enum class Format { nvfp4, mxfp4, fp8 };
enum class Rounding { nearest, stochastic, stochastic_hardware };
enum class Element { e2m1, e4m3 };
enum class Scaling { standard, four_six, search, up, eden };

/// Bit i % 32 of word i / 32 set: element i of a transform is negated. NVIDIA's sixteen signs are repeated.
using Signs = std::array<std::uint32_t, 4>;
inline constexpr Signs kFixedSigns = {0xD7E8D7E8, 0xD7E8D7E8, 0xD7E8D7E8, 0xD7E8D7E8};
inline constexpr Signs kNoSigns = {};

struct Spec {
  Format format = Format::nvfp4;
  long block_rows = 1;  // 0 x 0 = the whole tensor (FP8)
  long block_cols = 16;
  Rounding rounding = Rounding::nearest;
  int hadamard = 0;  // size of the transform along cols, 0 = none
  Signs signs = kFixedSigns;
  Scaling scaling = Scaling::standard;
};

/// Where the random bytes of stochastic rounding and of MS-EDEN come from.
struct Random {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t microbatch = 0;
  std::uint32_t tensor = 0;
};

struct Result {
  std::vector<std::uint8_t> codes;  // [rows, cols], one code per element
  std::vector<std::uint8_t>
      packed;  // [rows, cols/2] for 4 bits, even element in the low nibble; = codes for FP8
  std::vector<std::uint8_t>
      scale_bytes;  // NVFP4 [rows, cols/16] (16x16: once per row), MXFP4 [rows, ceil(cols/32)]
  std::vector<float>
      scales;      // FP8: [rows, ceil(cols/128)], [ceil(rows/128), ceil(cols/128)] or, for the whole, [1]
  float amax = 0;  // amax of the values after a transform; NaN if any is not finite
  std::vector<float> decoded;  // [rows, cols]
  long zero_scale_blocks = 0;  // not all zero, but the scale is
  long flushed = 0;            // x != 0 that decode to zero
  long saturated = 0;          // |f32(x * enc)| beyond the largest magnitude, in blocks with a scale
  double signal = 0;           // sum of x^2
  double noise = 0;            // sum of (x - decoded)^2
  double max_error = 0;        // max |x - decoded|
  long blocks = 0;             // with a scale of their own
  long non_finite = 0;  // quantized values that are NaN or infinite; if any, the result is poisoned and the
                        // statistics above are zero
};

/// x: row-major [rows, cols]; blocks run along cols. BF16 input is passed as its exact f32 values.
/// Throws std::invalid_argument for what the definition does not define.
Result quantize(const std::vector<float>& x, long rows, long cols, const Spec& spec,
                const Random& random = {});

// Casts to nearest even, saturating. A negative value that rounds to zero keeps its sign. NaN, which
// quantize() never casts, becomes +6 in E2M1 and NaN in the others.
int encode_e2m1(double x);
int encode_e4m3(double x);

double decode_e2m1(int code);
double decode_e4m3(int code);

/// u = (random_byte + 1/2) / 256 if centred, else random_byte / 256.
int encode_stochastic_e2m1(double x, int random_byte, bool centred);
int encode_stochastic_e4m3(double x, int random_byte, bool centred);

/// Where nearest rounding goes from one magnitude to the next.
struct Boundary {
  double midpoint = 0;
  bool tie_goes_up = false;
};
/// All positive ones, ascending. There is none above the largest magnitude: casts saturate.
std::vector<Boundary> boundaries(Element element);

/// To nearest even; beyond the largest BF16 by half a step or more: infinity.
float to_bf16(float x);

/// Stochastically, u = (random + 1/2) / 65536, of a finite x.
float to_bf16_stochastic(float x, int random);

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// The random byte of an element of a tensor with `cols` columns.
int random_byte(const Random& random, long row, long col, long cols);

/// One run; its size, a power of two, is the size of the transform.
std::vector<float> hadamard(const std::vector<float>& run, const Signs& signs);

}  // namespace tetrad::oracle
