// SPDX-License-Identifier: Apache-2.0
#include "inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <utility>

#include "oracle.h"

namespace tetrad::oracle {
namespace {

using Generator = std::mt19937_64;
using Input = std::vector<float>;

constexpr float kLargestF32 = std::numeric_limits<float>::max();

/// A matrix that is being filled, and where its randomness comes from.
struct Canvas {
  long rows;
  long cols;
  Generator random;
  Input x;

  float& at(long row, long col) { return x[static_cast<std::size_t>(row * cols + col)]; }
  double uniform(double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random); }
  long integer(long lo, long hi) { return std::uniform_int_distribution<long>(lo, hi)(random); }
  bool one_in(long n) { return integer(1, n) == 1; }
  float sign() { return integer(0, 1) == 0 ? 1.0F : -1.0F; }
  double normal() { return std::normal_distribution<double>()(random); }
  float any_of_magnitude(double log10_lo, double log10_hi) {
    return sign() * static_cast<float>(std::pow(10.0, uniform(log10_lo, log10_hi)));
  }
};

void gaussian(Canvas& c) {
  std::normal_distribution<float> normal;  // kept, because it makes its values in pairs
  for (float& x : c.x) x = normal(c.random);
}

void heavy_tailed(Canvas& c) {
  std::student_t_distribution<float> student(3.0F);
  for (float& x : c.x) x = student(c.random);
}

void zero_blocks(Canvas& c) {
  gaussian(c);
  const auto clear = [&c](long row_begin, long row_end, long col_begin, long col_end) {
    for (long row = row_begin; row < std::min(row_end, c.rows); ++row) {
      for (long col = col_begin; col < std::min(col_end, c.cols); ++col) c.at(row, col) = 0.0F * c.sign();
    }
  };
  for (long row = 0; row < c.rows; ++row) {
    for (long col = 0; col < c.cols; col += 16) {
      if (c.one_in(3)) clear(row, row + 1, col, col + 16);
    }
  }
  for (long row = 0; row < c.rows; row += 16) {
    for (long col = 0; col < c.cols; col += 16) {
      if (c.one_in(4)) clear(row, row + 16, col, col + 16);
    }
  }
  for (float& x : c.x) {
    if (c.one_in(10)) x = 0.0F * c.sign();
  }
}

void outlier(Canvas& c) {
  gaussian(c);
  for (float& x : c.x) x *= 1e-3F;
  const long size = c.rows * c.cols;
  for (long k = 0; k < std::max(size / 1'000'000, 1L); ++k) {
    c.x[static_cast<std::size_t>(c.integer(0, size - 1))] = c.any_of_magnitude(3, 6);
  }
}

constexpr double kSmallestSubnormal = 0x1p-149;
constexpr double kSmallestNormal = 0x1p-126;

float smallest_subnormals(Canvas& c) {
  return c.sign() * static_cast<float>(kSmallestSubnormal * static_cast<double>(c.integer(0, 9)));
}

float subnormal_or_tiny(Canvas& c) {
  switch (c.integer(0, 3)) {
    case 0:
      return smallest_subnormals(c);
    case 1:
      return c.sign() * static_cast<float>(c.uniform(0, kSmallestNormal));
    case 2:
      return c.sign() * static_cast<float>(c.uniform(1, 16) * kSmallestNormal);
    default:
      return c.any_of_magnitude(-44, -36);
  }
}

/// Everything is below 8e-36, where S_enc is clamped to FLT_MAX; some runs are so small that their scale is
/// zero even so.
void subnormals(Canvas& c) {
  for (long row = 0; row < c.rows; ++row) {
    for (long col = 0; col < c.cols; col += 16) {
      const bool smallest = c.one_in(3);
      for (long k = col; k < std::min(col + 16, c.cols); ++k) {
        c.at(row, k) = smallest ? smallest_subnormals(c) : subnormal_or_tiny(c);
      }
    }
  }
}

void subnormals_mixed(Canvas& c) {
  // By runs of 16: all tiny, so that the scale underflows beside a normal amax; all normal; some of each.
  for (long row = 0; row < c.rows; ++row) {
    for (long col = 0; col < c.cols; ++col) {
      const auto run = (row / 2 + col / 16) % 3;
      const bool tiny = run == 0 || (run == 2 && c.one_in(2));
      c.at(row, col) = tiny ? subnormal_or_tiny(c) : static_cast<float>(c.normal());
    }
  }
}

void float_max(Canvas& c) {
  for (float& x : c.x) x = c.one_in(24) ? c.sign() * kLargestF32 : c.any_of_magnitude(-38, 38.5);
  // Runs without the largest value, so that blocks of all magnitudes occur.
  for (long row = 0; row < c.rows; ++row) {
    for (long col = 0; col < c.cols; col += 16) {
      if (c.one_in(3)) continue;
      const double top = c.uniform(-36, 38);
      for (long k = col; k < std::min(col + 16, c.cols); ++k) c.at(row, k) = c.any_of_magnitude(top - 2, top);
    }
  }
  if (!c.x.empty()) c.x.back() = -kLargestF32;
}

void negative_zeros(Canvas& c) {
  for (float& x : c.x) {
    switch (c.integer(0, 5)) {
      case 0:
      case 1:
        x = -0.0F;
        break;
      case 2:
        x = 0.0F;
        break;
      case 3:
        x = -static_cast<float>(c.uniform(0, 0.04));
        break;  // below a quarter of a step beside a 1
      case 4:
        x = -std::fabs(c.any_of_magnitude(-44, -3));
        break;
      default:
        x = c.one_in(4) ? c.sign() : -0.0F;
        break;
    }
  }
}

void constant_blocks(Canvas& c) {
  for (long row = 0; row < c.rows; ++row) {
    for (long col = 0; col < c.cols; col += 16) {
      const float constant = c.any_of_magnitude(-4, 3);
      for (long k = col; k < std::min(col + 16, c.cols); ++k) c.at(row, k) = constant;
    }
  }
}

/// A number for the tile of a position, so that a whole 16 x 32 tile, and every 4-bit block in it, agrees on
/// something.
long tile_number(long row, long col) { return (row / 16) * 7 + (col / 32) * 3; }

void exact(Canvas& c) {
  for (long row = 0; row < c.rows; ++row) {
    for (long col = 0; col < c.cols; ++col) {
      // Within 2^8 of the largest, which E4M3 scales still hold exactly; a 6 in each run makes its maximum.
      const int exponent = static_cast<int>(tile_number(row, col) % 9) - 6;
      const double element = (col + row) % 16 == 0 ? 6 : decode_e2m1(static_cast<int>(c.integer(0, 7)));
      c.at(row, col) = c.sign() * static_cast<float>(std::ldexp(element, exponent));
    }
  }
}

/// A value near a tie: three in four on it, the others one step of f32 off.
float at_or_beside(Canvas& c, double tie) {
  const float x = static_cast<float>(tie);
  const long side = c.integer(0, 7);
  if (side == 0) return c.sign() * std::nextafter(x, 0.0F);
  if (side == 1) return c.sign() * std::nextafter(x, kLargestF32);
  return c.sign() * x;
}

/// Ties need scales that are powers of two (or nearly sixths of them), and those follow from the maxima.
void ties(Canvas& c) {
  static const std::vector<Boundary> four_bits = boundaries(Element::e2m1);
  static const std::vector<Boundary> eight_bits = boundaries(Element::e4m3);
  constexpr double kTensorMax = 2688;  // S_enc = 1, and FP8's scale of the whole tensor is 6
  const auto any = [&c](const std::vector<Boundary>& list) {
    return list[static_cast<std::size_t>(c.integer(0, static_cast<long>(list.size()) - 1))].midpoint;
  };
  for (long row = 0; row < c.rows; ++row) {
    for (long col = 0; col < c.cols; ++col) {
      float& x = c.at(row, col);
      const auto kind = (row / 128 + col / 128) % 3;
      if (kind == 0) {  // E2M1 with block scale 2^exponent
        const double scale = std::ldexp(1.0, static_cast<int>(tile_number(row, col) % 15) - 6);
        x = (col + row) % 16 == 0 ? c.sign() * static_cast<float>(6 * scale)
                                  : at_or_beside(c, any(four_bits) * scale);
      } else if (kind == 1) {  // E4M3 with a block maximum of 448 * 2^exponent
        const double scale = std::ldexp(1.0, static_cast<int>((row / 128 + col / 128) % 8) - 6);
        x = (col + row) % 16 == 0 ? c.sign() * static_cast<float>(448 * scale)
                                  : at_or_beside(c, any(eight_bits) * scale);
      } else {  // E4M3 with one scale for the tensor
        x = at_or_beside(c, 6 * any(eight_bits));
      }
    }
  }
  if (!c.x.empty()) c.x[c.x.size() / 2] = static_cast<float>(kTensorMax);
}

struct Kind {
  const char* name;
  void (*fill)(Canvas&);
};

constexpr std::array<Kind, 11> kKinds = {{
    {"gaussian", gaussian},
    {"heavy_tailed", heavy_tailed},
    {"zero_blocks", zero_blocks},
    {"outlier", outlier},
    {"subnormals", subnormals},
    {"subnormals_mixed", subnormals_mixed},
    {"float_max", float_max},
    {"negative_zeros", negative_zeros},
    {"constant_blocks", constant_blocks},
    {"exact", exact},
    {"ties", ties},
}};

}  // namespace

const std::vector<std::string>& input_kinds() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Kind& kind : kKinds) result.emplace_back(kind.name);
    return result;
  }();
  return names;
}

std::vector<float> make_input(std::string_view kind, long rows, long cols) {
  for (std::size_t k = 0; k < kKinds.size(); ++k) {
    if (kKinds[k].name != kind) continue;
    const std::uint64_t seed = 1000 * (k + 1) + static_cast<std::uint64_t>(rows * 31 + cols);
    Canvas canvas = {rows, cols, Generator(seed), Input(static_cast<std::size_t>(rows * cols))};
    if (!canvas.x.empty()) kKinds[k].fill(canvas);
    return std::move(canvas.x);
  }
  throw std::invalid_argument("no input kind \"" + std::string(kind) + "\"");
}

std::vector<float> rounded_to_bf16(std::vector<float> x) {
  const float largest = std::ldexp(255.0F, 120);
  for (float& value : x) {
    if (std::isfinite(value)) value = std::clamp(to_bf16(value), -largest, largest);
  }
  return x;
}

}  // namespace tetrad::oracle
