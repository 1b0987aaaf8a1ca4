// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace tetrad::oracle {
namespace {

constexpr double kFloatMax = std::numeric_limits<float>::max();
constexpr float kFloatNan = std::numeric_limits<float>::quiet_NaN();

/// One rounding to single precision. A sum, product or quotient of two floats that is computed in double and
/// then goes through here is correctly rounded: 53 bits >= 2 * 24 + 2.
double f32(double x) { return static_cast<double>(static_cast<float>(x)); }

std::size_t index(long i) { return static_cast<std::size_t>(i); }

long ceil_div(long a, long b) { return (a + b - 1) / b; }

/// All values of a small floating-point format, from the meaning of sign, exponent and mantissa.
class ValueTable {
 public:
  struct Layout {
    int exponent_bits;
    int mantissa_bits;
    int bias;
    int finite;                // number of finite non-negative codes; the ones above are NaN
    bool keeps_negative_zero;  // whether the cast of an exact -0.0 is -0.0
  };

  explicit ValueTable(const Layout& layout)
      : layout_(layout), sign_code_(1 << (layout.exponent_bits + layout.mantissa_bits)) {
    for (int code = 0; code < layout.finite; ++code) magnitudes_.push_back(magnitude(code));
    for (int code = 0; code < 2 * sign_code_; ++code) decoded_.push_back(value(code));
    for (int code = 0; code + 1 < layout.finite; ++code) {
      midpoints_.push_back((magnitudes_[index(code)] + magnitudes_[index(code) + 1]) / 2);
    }
    // So that the search can halve.
    magnitudes_.resize(index(sign_code_), std::numeric_limits<double>::infinity());
  }

  double largest() const { return magnitudes_[index(layout_.finite - 1)]; }
  double decode(int code) const { return decoded_[index(code)]; }

  int nearest(double x) const {
    if (std::isnan(x)) return nan_code();
    const double a = std::fabs(x);
    if (a >= largest()) return with_sign(x, layout_.finite - 1);
    const int lo = neighbour_below(a);
    const double middle = midpoints_[index(lo)];
    const bool up = a > middle || (a == middle && lo % 2 == 1);  // a tie goes to the even code
    return with_sign(x, up ? lo + 1 : lo);
  }

  int stochastic(double x, int random_byte, bool centred) const {
    if (std::isnan(x)) return nan_code();
    const double a = std::fabs(x);
    if (a >= largest()) return with_sign(x, layout_.finite - 1);
    const int lo = neighbour_below(a);
    const double below = magnitudes_[index(lo)];
    const double above = magnitudes_[index(lo) + 1];
    const double fraction = (a - below) / (above - below);  // exact: the step is a power of two
    const double u = (random_byte + (centred ? 0.5 : 0.0)) / 256;
    // fraction + u >= 1, with the exact side alone so that no tiny fraction is rounded into the sum.
    return with_sign(x, fraction >= 1 - u ? lo + 1 : lo);
  }

  std::vector<Boundary> boundaries() const {
    std::vector<Boundary> result;
    for (std::size_t lo = 0; lo < midpoints_.size(); ++lo) result.push_back({midpoints_[lo], lo % 2 == 1});
    return result;
  }

 private:
  double magnitude(int code) const {
    const int mantissa_range = 1 << layout_.mantissa_bits;
    const int exponent = code / mantissa_range;
    const double fraction = static_cast<double>(code % mantissa_range) / mantissa_range;
    if (exponent == 0) return std::ldexp(fraction, 1 - layout_.bias);
    return std::ldexp(1 + fraction, exponent - layout_.bias);
  }

  double value(int code) const {
    const int rest = code % sign_code_;
    double result = std::numeric_limits<double>::quiet_NaN();
    if (rest < layout_.finite) result = magnitude(rest);
    return code >= sign_code_ ? -result : result;
  }

  int nan_code() const { return sign_code_ - 1; }

  int with_sign(double x, int code) const {
    const bool negative = x < 0 || (layout_.keeps_negative_zero && x == 0 && std::signbit(x));
    return negative ? code + sign_code_ : code;
  }

  /// The largest code whose magnitude is at most a.
  int neighbour_below(double a) const {
    int code = 0;
    for (int step = sign_code_ / 2; step > 0; step /= 2) {
      code = magnitudes_[index(code + step)] <= a ? code + step : code;
    }
    return code;
  }

  Layout layout_;
  int sign_code_;  // the code of -0
  std::vector<double> magnitudes_;
  std::vector<double> midpoints_;
  std::vector<double> decoded_;
};

const ValueTable& table_of(Element element) {
  // The rule that an exact -0.0 becomes code 0 is stated for E2M1; the FP8 formats follow OCP, where it stays
  // -0.0.
  static const ValueTable e2m1({2, 1, 1, 8, false});
  static const ValueTable e4m3({4, 3, 7, 127, true});
  switch (element) {
    case Element::e2m1:
      return e2m1;
    case Element::e4m3:
      return e4m3;
  }
  throw std::invalid_argument("oracle: no such element format");
}

/// The transform of one run, given and returned as doubles that hold f32 values; `scratch` has the run's
/// size.
void transform_run(std::vector<double>& run, std::vector<double>& scratch, const Signs& signs) {
  const std::size_t size = run.size();
  for (std::size_t i = 0; i < size; ++i) {
    const double x = static_cast<double>(to_bf16(static_cast<float>(run[i])));
    run[i] = (signs[i / 32] >> (i % 32)) % 2 == 1 ? -x : x;
  }
  for (std::size_t stride = 1; stride < size; stride *= 2) {
    for (std::size_t i = 0; i < size; ++i) {
      const double partner = run[i ^ stride];
      scratch[i] = (i & stride) == 0 ? f32(run[i] + partner) : f32(partner - run[i]);
    }
    std::swap(run, scratch);
  }
  const double scale = f32(1 / std::sqrt(static_cast<double>(size)));
  for (double& y : run) y = static_cast<double>(to_bf16(static_cast<float>(y * scale)));
}

std::vector<float> transformed(const std::vector<float>& x, int size, const Signs& signs) {
  std::vector<float> result(x.size());
  std::vector<double> run(static_cast<std::size_t>(size));
  std::vector<double> scratch(run.size());
  for (std::size_t first = 0; first < x.size(); first += run.size()) {
    for (std::size_t i = 0; i < run.size(); ++i) run[i] = static_cast<double>(x[first + i]);
    transform_run(run, scratch, signs);
    for (std::size_t i = 0; i < run.size(); ++i) result[first + i] = static_cast<float>(run[i]);
  }
  return result;
}

/// The random bytes of sixteen neighbours, least significant byte of each word first.
std::array<int, 16> bytes_of_group(const Random& random, long group) {
  constexpr std::uint64_t kWord = 1ULL << 32;
  const auto words = philox(
      {random.step, random.microbatch, random.tensor, static_cast<std::uint32_t>(group)},
      {static_cast<std::uint32_t>(random.seed % kWord), static_cast<std::uint32_t>(random.seed / kWord)});
  std::array<int, 16> bytes = {};
  for (std::size_t j = 0; j < 16; ++j) bytes[j] = static_cast<int>((words[j / 4] >> (8 * (j % 4))) % 256);
  return bytes;
}

struct Block {
  long row_begin, row_end, col_begin, col_end;
};

/// How the elements of one block become codes and codes become values again.
struct BlockScale {
  double encode = 1;         // code = cast(f32(x * encode))
  double decode = 1;         // value = code * decode * tensor_decode
  double tensor_decode = 1;  // only NVFP4 has one
  std::uint8_t byte = 0;

  double value(double element) const { return f32(f32(element * decode) * tensor_decode); }
};

/// One run of quantize(): the input, the choices and the result that is being filled.
class Quantization {
 public:
  Quantization(std::vector<float> x, long rows, long cols, const Spec& spec, const Random& random)
      : x_(std::move(x)),
        rows_(rows),
        cols_(cols),
        spec_(spec),
        random_(random),
        block_rows_(spec.block_rows == 0 ? std::max(rows, 1L) : spec.block_rows),
        block_cols_(spec.block_cols == 0 ? std::max(cols, 1L) : spec.block_cols),
        scale_cols_(spec.block_cols == 0 ? 1 : ceil_div(cols, block_cols_)),
        element_(table_of(spec.format == Format::fp8 ? Element::e4m3 : Element::e2m1)) {}

  Result run() {
    const long scale_rows = spec_.block_rows == 0 ? 1 : ceil_div(rows_, block_rows_);
    result_.codes.resize(x_.size());
    result_.decoded.resize(x_.size());
    if (spec_.format == Format::fp8) {
      result_.scales.resize(index(scale_rows * scale_cols_));
    } else {
      result_.scale_bytes.resize(index(rows_ * scale_cols_));
    }
    result_.blocks = scale_rows * scale_cols_;
    for (const float x : x_) result_.non_finite += std::isfinite(x) ? 0 : 1;
    if (result_.non_finite > 0) {
      poison();
    } else {
      const double amax = amax_of({0, rows_, 0, cols_});
      result_.amax = static_cast<float>(amax);
      set_tensor_scale(amax);
      for (long i = 0; i < scale_rows; ++i) {
        for (long j = 0; j < scale_cols_; ++j) quantize_block(i, j);
      }
    }
    pack();
    return std::move(result_);
  }

 private:
  double at(long row, long col) const { return static_cast<double>(x_[index(row * cols_ + col)]); }

  double amax_of(const Block& block) const {
    double amax = 0;
    for (long row = block.row_begin; row < block.row_end; ++row) {
      for (long col = block.col_begin; col < block.col_end; ++col) {
        amax = std::max(amax, std::fabs(at(row, col)));
      }
    }
    return amax;
  }

  void poison() {
    result_.amax = kFloatNan;
    std::fill(result_.decoded.begin(), result_.decoded.end(), kFloatNan);
    std::fill(result_.scales.begin(), result_.scales.end(), kFloatNan);
    if (spec_.format == Format::mxfp4) {
      std::fill(result_.scale_bytes.begin(), result_.scale_bytes.end(), std::uint8_t{255});
    }
  }

  void set_tensor_scale(double amax) {
    const double range = 6.0 * (chooses() || corrects() ? 256 : 448);
    tensor_encode_ = amax == 0 ? 1 : std::min(f32(range / amax), kFloatMax);
    if (tensor_encode_ == 0) tensor_encode_ = 1;
    tensor_decode_ = f32(1 / tensor_encode_);
  }

  bool chooses() const { return spec_.scaling == Scaling::four_six || spec_.scaling == Scaling::search; }

  bool corrects() const { return spec_.scaling == Scaling::eden; }

  /// NVFP4: the byte that maps the block's maximum to 6, or to 4; under MS-EDEN to 6 / (17/16 * 0.93).
  int nvfp4_byte(double block_amax, bool to_four) const {
    const double m = f32(tensor_encode_ * f32(corrects() ? 17.0 / 16.0 * 0.93 / 6.0 : 1.0 / 6.0));
    return encode_e4m3(std::min(f32(f32(block_amax * m) * (to_four ? 1.5 : 1.0)), kFloatMax));
  }

  BlockScale nvfp4_scale(int byte) const {
    BlockScale scale;
    scale.byte = static_cast<std::uint8_t>(byte);
    scale.decode = decode_e4m3(scale.byte);
    scale.tensor_decode = tensor_decode_;
    scale.encode = std::min(f32(1 / f32(scale.decode * tensor_decode_)), kFloatMax);
    return scale;
  }

  /// What nearest rounding would lose with this scale, in units of the tensor's: every operation in f32,
  /// along each row, then over the rows.
  double squared_error(const Block& block, const BlockScale& scale) const {
    double total = 0;
    for (long row = block.row_begin; row < block.row_end; ++row) {
      double row_sum = 0;
      for (long col = block.col_begin; col < block.col_end; ++col) {
        const double x = at(row, col);
        const double element = element_.decode(element_.nearest(f32(x * scale.encode)));
        const double error = f32(f32(element * scale.decode) - f32(x * tensor_encode_));
        row_sum = f32(row_sum + f32(error * error));
      }
      total = f32(total + row_sum);
    }
    return total;
  }

  /// The first of the candidates with the least error.
  BlockScale chosen_scale(const Block& block, double block_amax) const {
    const int six = nvfp4_byte(block_amax, false);
    const int four = nvfp4_byte(block_amax, true);
    std::vector<int> bytes = {six, four};
    if (spec_.scaling == Scaling::search)
      for (const int centre : {six, four})
        for (const int step : {-1, 1}) bytes.push_back(std::clamp(centre + step, 0, 126));
    BlockScale best;
    double least = std::numeric_limits<double>::infinity();
    for (const int byte : bytes) {
      const BlockScale scale = nvfp4_scale(byte);
      const double error = squared_error(block, scale);
      if (error >= least && &byte != &bytes.front()) continue;
      best = scale;
      least = error;
    }
    return best;
  }

  /// c of the rotated group that a block of one row belongs to.
  double correction_of(const Block& block) const {
    const long size = spec_.hadamard;
    const long first = block.col_begin / size * size;
    std::vector<double> squares;
    std::vector<double> products;
    for (long begin = first; begin < first + size; begin += 16) {
      const Block part = {block.row_begin, block.row_end, begin, begin + 16};
      const BlockScale scale = nvfp4_scale(nvfp4_byte(amax_of(part), false));
      squares.push_back(0);
      products.push_back(0);
      for (long col = begin; col < begin + 16; ++col) {
        const double x = at(block.row_begin, col);
        const double y = f32(std::fabs(x) * tensor_encode_);
        const double q = std::fabs(element_.decode(element_.nearest(f32(x * scale.encode)))) * scale.decode;
        squares.back() = f32(squares.back() + f32(y * y));
        products.back() = f32(products.back() + f32(y * q));
      }
    }
    const double square = sum_of_pairs(squares);
    const double product = sum_of_pairs(products);
    return product == 0 ? 1 : std::min(f32(square / product), kFloatMax);
  }

  /// Neighbours are added until one is left; there are 2^n.
  static double sum_of_pairs(std::vector<double> values) {
    while (values.size() > 1) {
      std::vector<double> sums;
      for (std::size_t i = 0; i < values.size(); i += 2) sums.push_back(f32(values[i] + values[i + 1]));
      values = std::move(sums);
    }
    return values.front();
  }

  /// Codes are found with the block's own scale; another one, drawn beside c times it, is stored.
  BlockScale corrected_scale(const Block& block, double block_amax) const {
    BlockScale scale = nvfp4_scale(nvfp4_byte(block_amax, false));
    const long number = (block.row_begin * cols_ + block.col_begin) / 16;
    const int random = bytes_of_group(random_, number / 16)[index(number % 16)];
    const double wanted = f32(correction_of(block) * scale.decode);
    scale.byte = static_cast<std::uint8_t>(encode_stochastic_e4m3(wanted, random, true));
    scale.decode = decode_e4m3(scale.byte);
    return scale;
  }

  BlockScale nvfp4_scale_of(const Block& block, double block_amax) const {
    if (chooses()) return chosen_scale(block, block_amax);
    if (corrects()) return corrected_scale(block, block_amax);
    return nvfp4_scale(nvfp4_byte(block_amax, false));
  }

  BlockScale scale_of(const Block& block, double block_amax) const {
    BlockScale scale;
    switch (spec_.format) {
      case Format::nvfp4: {
        scale = nvfp4_scale_of(block, block_amax);
        break;
      }
      case Format::mxfp4: {
        int byte = 0;
        if (spec_.scaling ==
            Scaling::up) {  // the least scale with which 6 reaches the maximum, as far as 2^125
          while (byte < 252 && 6 * std::ldexp(1.0, byte - 127) < block_amax) ++byte;
        } else {
          const int exponent = block_amax == 0 ? -1000 : std::ilogb(block_amax);  // floor(log2 amax)
          byte = std::max(exponent + 127 - 2, 0);
        }
        scale.byte = static_cast<std::uint8_t>(byte);
        scale.encode = std::ldexp(1.0, 127 - byte);
        scale.decode = std::ldexp(1.0, byte - 127);
        break;
      }
      case Format::fp8: {
        scale.encode = block_amax == 0 ? 1 : std::min(f32(448 / block_amax), kFloatMax);
        scale.decode = f32(1 / scale.encode);
        break;
      }
    }
    return scale;
  }

  void store_scale(const Block& block, long i, long j, const BlockScale& scale) {
    if (spec_.format == Format::fp8) {
      result_.scales[index(i * scale_cols_ + j)] = static_cast<float>(scale.decode);
      return;
    }
    for (long row = block.row_begin; row < block.row_end; ++row) {
      result_.scale_bytes[index(row * scale_cols_ + j)] = scale.byte;
    }
  }

  int cast(double scaled, long row, long col) {
    if (spec_.rounding == Rounding::nearest) return element_.nearest(scaled);
    return element_.stochastic(scaled, next_random_byte(row, col), spec_.rounding == Rounding::stochastic);
  }

  /// The element's random byte; the sixteen of the last group are kept because its neighbours want the
  /// others.
  int next_random_byte(long row, long col) {
    const long element = row * cols_ + col;
    if (element / 16 != group_) {
      group_ = element / 16;
      group_bytes_ = bytes_of_group(random_, group_);
    }
    return group_bytes_[index(element % 16)];
  }

  // Scaling by 448 / amax lands a few f32 roundings beside 448; only what is further out was clipped.
  static constexpr double kRoundingSlack = 1 + 0x1p-20;

  void quantize_block(long i, long j) {
    const Block block = {i * block_rows_, std::min((i + 1) * block_rows_, rows_), j * block_cols_,
                         std::min((j + 1) * block_cols_, cols_)};
    const double block_amax = amax_of(block);
    const BlockScale scale = scale_of(block, block_amax);
    store_scale(block, i, j, scale);
    if (block_amax != 0 && scale.decode == 0) ++result_.zero_scale_blocks;
    for (long row = block.row_begin; row < block.row_end; ++row) {
      double signal = 0;
      double noise = 0;
      for (long col = block.col_begin; col < block.col_end; ++col) {
        const double x = at(row, col);
        const double scaled = f32(x * scale.encode);
        const int code = cast(scaled, row, col);
        const double decoded = scale.value(element_.decode(code));
        const double error = std::fabs(x - decoded);
        result_.codes[index(row * cols_ + col)] = static_cast<std::uint8_t>(code);
        result_.decoded[index(row * cols_ + col)] = static_cast<float>(decoded);
        if (x != 0 && decoded == 0) ++result_.flushed;
        if (scale.decode != 0 && std::fabs(scaled) > element_.largest() * kRoundingSlack) ++result_.saturated;
        signal += x * x;
        noise += error * error;
        result_.max_error = std::max(result_.max_error, error);
      }
      result_.signal += signal;
      result_.noise += noise;
    }
  }

  void pack() {
    if (spec_.format == Format::fp8) {
      result_.packed = result_.codes;
      return;
    }
    result_.packed.resize(result_.codes.size() / 2);
    for (std::size_t k = 0; k < result_.packed.size(); ++k) {
      result_.packed[k] = static_cast<std::uint8_t>(result_.codes[2 * k] + 16 * result_.codes[2 * k + 1]);
    }
  }

  std::vector<float> x_;
  long rows_;
  long cols_;
  Spec spec_;
  Random random_;
  long block_rows_;
  long block_cols_;
  long scale_cols_;
  const ValueTable& element_;
  double tensor_encode_ = 1;
  double tensor_decode_ = 1;
  long group_ = -1;
  std::array<int, 16> group_bytes_ = {};
  Result result_;
};

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(std::string("oracle: ") + what);
}

bool is_power_of_two(long n) { return n > 0 && (n & (n - 1)) == 0; }

void require_defined(const std::vector<float>& x, long rows, long cols, const Spec& spec) {
  require(rows >= 0 && cols >= 0 && x.size() == index(rows * cols), "x must hold rows * cols values");
  require(cols % 16 == 0, "cols must be a multiple of 16");
  const std::pair<long, long> block = {spec.block_rows, spec.block_cols};
  const auto is = [&block](long r, long c) { return block == std::pair<long, long>(r, c); };
  switch (spec.format) {
    case Format::nvfp4:
      require(is(1, 16) || is(16, 16), "NVFP4 blocks are 1x16 or 16x16");
      require(rows % spec.block_rows == 0, "16x16 blocks need rows in multiples of 16");
      break;
    case Format::mxfp4:
      require(is(1, 32) || is(32, 32), "MXFP4 blocks are 1x32 or 32x32");
      break;
    case Format::fp8:
      require(is(1, 128) || is(128, 128) || is(0, 0), "FP8 blocks are 1x128, 128x128 or whole");
      break;
  }
  const bool of_nvfp4 = spec.scaling != Scaling::standard && spec.scaling != Scaling::up;
  require(!of_nvfp4 || spec.format == Format::nvfp4, "scales are chosen and corrected in NVFP4");
  require(spec.scaling != Scaling::eden ||
              (spec.block_rows == 1 && spec.hadamard >= 16 && spec.rounding == Rounding::nearest),
          "MS-EDEN corrects rotated rows, to nearest");
  require(spec.scaling != Scaling::up || spec.format == Format::mxfp4, "scales are rounded up in MXFP4");
  if (spec.hadamard != 0) {
    require(spec.hadamard > 1 && is_power_of_two(spec.hadamard), "the transform's size is a power of two");
    require(cols % spec.hadamard == 0, "cols must be a multiple of the transform's size");
  }
}

}  // namespace

int encode_e2m1(double x) { return table_of(Element::e2m1).nearest(x); }
int encode_e4m3(double x) { return table_of(Element::e4m3).nearest(x); }

double decode_e2m1(int code) { return table_of(Element::e2m1).decode(code); }
double decode_e4m3(int code) { return table_of(Element::e4m3).decode(code); }

int encode_stochastic_e2m1(double x, int random_byte, bool centred) {
  return table_of(Element::e2m1).stochastic(x, random_byte, centred);
}
int encode_stochastic_e4m3(double x, int random_byte, bool centred) {
  return table_of(Element::e4m3).stochastic(x, random_byte, centred);
}

std::vector<Boundary> boundaries(Element element) { return table_of(element).boundaries(); }

float to_bf16(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
  // 8 significant bits, or what is left of them below the smallest normal value 2^-126.
  const int quantum = std::max(exponent - 8, -126 - 7);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), -quantum)), quantum);
  const double largest = std::ldexp(255.0, 120);
  if (std::fabs(rounded) > largest) return std::copysign(std::numeric_limits<float>::infinity(), x);
  return static_cast<float>(rounded);
}

float to_bf16_stochastic(float x, int random) {
  const double magnitude = std::fabs(static_cast<double>(x));
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const double quantum = std::ldexp(1.0, magnitude == 0 ? -133 : std::max(exponent - 8, -126 - 7));
  const double below = std::floor(magnitude / quantum) * quantum;
  const bool goes_up = (magnitude - below) / quantum + (random + 0.5) / 65536 >= 1;
  const double largest = std::ldexp(255.0, 120);
  return static_cast<float>(std::copysign(std::min(goes_up ? below + quantum : below, largest), x));
}

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  // Salmon et al. 2011: the counter is two pairs (R, L). A round multiplies each R by its constant, and a
  // pair becomes
  //   R' = high(product) xor key xor L,  L' = low(product)
  // with the product of the *other* pair. The key of round i is key + i * Weyl constant, modulo 2^32.
  constexpr std::array<std::uint64_t, 2> kMultiplier = {0xD2511F53, 0xCD9E8D57};
  constexpr std::array<std::uint64_t, 2> kWeyl = {0x9E3779B9, 0xBB67AE85};
  constexpr std::uint64_t kWord = 1ULL << 32;
  for (std::uint64_t round = 0; round < 10; ++round) {
    const auto before = counter;
    for (std::size_t pair = 0; pair < 2; ++pair) {
      const std::size_t other = 1 - pair;
      const std::uint64_t product = kMultiplier[other] * before[2 * other];
      const std::uint64_t round_key = (key[pair] + round * kWeyl[pair]) % kWord;
      counter[2 * pair] = static_cast<std::uint32_t>((product / kWord) ^ round_key ^ before[2 * pair + 1]);
      counter[2 * pair + 1] = static_cast<std::uint32_t>(product % kWord);
    }
  }
  return counter;
}

int random_byte(const Random& random, long row, long col, long cols) {
  const long element = row * cols + col;
  return bytes_of_group(random, element / 16)[index(element % 16)];
}

std::vector<float> hadamard(const std::vector<float>& run, const Signs& signs) {
  require(is_power_of_two(static_cast<long>(run.size())), "the transform's size is a power of two");
  return transformed(run, static_cast<int>(run.size()), signs);
}

Result quantize(const std::vector<float>& x, long rows, long cols, const Spec& spec, const Random& random) {
  require_defined(x, rows, cols, spec);
  auto values = spec.hadamard == 0 ? x : transformed(x, spec.hadamard, spec.signs);
  return Quantization(std::move(values), rows, cols, spec, random).run();
}

}  // namespace tetrad::oracle
