// SPDX-License-Identifier: Apache-2.0
// Ranks quantize bands of a tensor, by the amax of all bands and at their place in the whole: one after the
// other, the bytes are those of the whole tensor, so that codes can be gathered instead of values.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/backends.h"
#include "support/matrices.h"
#include "support/quant_cases.h"
#include "tetrad/parallel/sharding.h"

namespace tetrad::testing::banded_quantization_test {
namespace {

constexpr RandomStream kRandom{.seed = 7, .step = 3, .microbatch = 2, .tensor = 5};
constexpr std::int64_t kRows = 416;  // three tiles of 128 and a shorter one
constexpr std::int64_t kCols = 256;

using Bytes = std::vector<std::byte>;

void append(Bytes& all, const Buffer& part) {
  const auto bytes = part.span<std::byte>();
  all.insert(all.end(), bytes.begin(), bytes.end());
}

/// Rows of the tensor that must not be separated: those of a block, and of a transform along them.
std::int64_t granularity(const QuantSpec& spec) {
  const bool along_rows = spec.axis == 0;
  const std::int64_t block = spec.block.is_whole() ? 1 : along_rows ? spec.block.cols : spec.block.rows;
  const std::int64_t transform = along_rows && spec.hadamard > 0 ? spec.hadamard : 1;
  return std::lcm(std::lcm(std::int64_t{16}, block), transform);
}

class BandedQuantization : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }

  QuantizedTensor quantized(const TestMatrix& x, const QuantSpec& spec, const RowBand& band,
                            std::optional<float> amax, QuantStats& stats) {
    // Of a tensor that is quantized along its rows, these are columns as the product sees it; in the order of
    // columns a band's codes lie together.
    const bool along_rows = spec.axis == 0;
    QuantizeOptions options;
    options.random = kRandom;
    options.part = along_rows ? PartOfTensor{0, band.first, kRows} : PartOfTensor{band.first, 0, kCols};
    options.order = along_rows ? CodeOrder::col_major : CodeOrder::row_major;
    options.amax = amax;
    QuantizedTensor out;
    stats = device().quantize(rows(x.view(), band.first, band.count), spec, options, out);
    return out;
  }
};

TEST_P(BandedQuantization, IsThatOfTheWhole) {
  const TestMatrix x({DType::f32, false}, kRows, kCols, random_values(kRows * kCols, 1));
  for (const QuantCase& each : quant_cases())
    for (const int axis : {0, 1}) {
      QuantSpec spec = each.spec;
      spec.axis = axis;
      if (axis == 0 && kRows % std::max(spec.hadamard, 1) != 0) continue;
      QuantStats stats;
      const QuantizedTensor whole = quantized(x, spec, {0, kRows}, std::nullopt, stats);
      for (const int ranks : {1, 2, 3, 5, 40}) {
        SCOPED_TRACE(::testing::Message()
                     << each.name << " along axis " << axis << ", " << ranks << " ranks");
        const std::vector<RowBand> bands = bands_of_rows(kRows, granularity(spec), ranks, 1);
        float amax = 0;
        for (const RowBand& band : bands) {
          if (band.count == 0) continue;
          quantized(x, spec, band, std::nullopt, stats);
          amax = std::max(amax, stats.amax);
        }
        Bytes codes;
        Bytes scales;
        for (const RowBand& band : bands) {
          if (band.count == 0) continue;
          const QuantizedTensor part = quantized(x, spec, band, amax, stats);
          EXPECT_EQ(part.amax, whole.amax);
          append(codes, part.codes);
          if (spec.block.is_whole()) scales.clear();  // all have the tensor's
          append(scales, part.scales);
        }
        Bytes expected;
        append(expected, whole.codes);
        EXPECT_TRUE(codes == expected) << "codes";
        expected.clear();
        append(expected, whole.scales);
        EXPECT_TRUE(scales == expected) << "scales";
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, BandedQuantization, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::banded_quantization_test
