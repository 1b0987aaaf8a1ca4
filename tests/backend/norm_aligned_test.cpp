// SPDX-License-Identifier: Apache-2.0
// The norms on views whose rows are aligned to 16 bytes and of the widths of real models: where backends have
// their fast forms, of several sizes, of which norm_test.cpp reaches few.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle/decoder_ops.h"
#include "support/activations.h"
#include "support/aligned_matrix.h"
#include "support/backends.h"

namespace tetrad::testing::norm_aligned_test {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr double kF32Error = 1e-5;                 //!< relative to the tensor's largest value
constexpr double kBf16Error = 0x1p-8 + kF32Error;  //!< the output's rounding, and an f32 error before it

struct Shape {
  std::int64_t rows, width;
  std::int64_t groups = 1;

  std::int64_t size() const { return rows * width; }
};

template <typename T>
constexpr double kError = std::is_same_v<T, float> ? kF32Error : kBf16Error;

class AlignedNorm : public ::testing::TestWithParam<std::string> {
 protected:
  static Backend& device() { return backend(GetParam()); }
};

/// What the gradients are held against: f32, in views of any alignment, as norm_test.cpp holds them against
/// the formula.
struct Unaligned : Activations {
  Unaligned(std::int64_t rows, std::int64_t cols, const Values& values)
      : Activations(DType::f32, rows, cols, values) {}
  Unaligned(std::int64_t rows, std::int64_t cols) : Activations(DType::f32, rows, cols) {}
};

// ---- RMSNorm

template <typename Matrix>
struct RmsNormPasses {
  Matrix x, y, dy, dx;
  std::vector<float> weight, inverse_rms, dweight;

  RmsNormPasses(Backend& device, const Shape& shape, Accumulate accumulate = Accumulate::yes)
      : x(shape.rows, shape.width, normal_values(shape.size(), 1, 2)),
        y(shape.rows, shape.width),
        dy(shape.rows, shape.width, normal_values(shape.size(), 2)),
        dx(shape.rows, shape.width, normal_values(shape.size(), 3)),
        weight(to_f32(normal_values(shape.width / shape.groups, 4))),
        inverse_rms(static_cast<std::size_t>(shape.rows * shape.groups), NAN),
        dweight(weight.size(), 0.5f) {
    device.rms_norm(RmsNormForward{x.view(), weight.data(), kEpsilon, y.mutable_view(), inverse_rms.data(),
                                   shape.groups});
    device.rms_norm(RmsNormBackward{x.view(), weight.data(), inverse_rms.data(), dy.view(), dx.mutable_view(),
                                    dweight.data(), shape.groups, accumulate});
  }
};

/// Rows that a block's threads hold in 1, 2, 4 and 8 vectors each, and in more; heads, of which some are not
/// as wide as a thread reads, and of more rows than there are blocks.
template <typename T>
void check_rms_norm(Backend& device) {
  for (const Shape& shape : {Shape{1, 8}, Shape{3, 264}, Shape{70, 1024}, Shape{5, 2056}, Shape{4, 4104},
                             Shape{3, 10248}, Shape{2, 20480}, Shape{1, 256, 2}, Shape{70, 1024, 8},
                             Shape{5, 48, 4}, Shape{3, 5120, 2}, Shape{600, 1024, 64}}) {
    SCOPED_TRACE(fmt::format("{} x {}, heads {}", shape.rows, shape.width, shape.groups));
    const RmsNormPasses<AlignedMatrix<T>> passes(device, shape);
    const Values weight(passes.weight.begin(), passes.weight.end());
    EXPECT_LT(
        relative_error(passes.y.values(), oracle::rms_norm(passes.x.values(), weight, double{kEpsilon})),
        kError<T>);
    const RmsNormPasses<Unaligned> expected(cpu_backend(), shape);
    EXPECT_LT(relative_error(passes.inverse_rms, expected.inverse_rms), kF32Error);
    EXPECT_LT(relative_error(passes.dx.values(), expected.dx.values()), kError<T>);
    EXPECT_LT(relative_error(passes.dweight, expected.dweight), kF32Error);
    EXPECT_TRUE(passes.y.surroundings_are_untouched() && passes.dx.surroundings_are_untouched());

    const RmsNormPasses<AlignedMatrix<T>> again(device, shape);
    EXPECT_TRUE(again.y.same_bytes(passes.y) && again.dx.same_bytes(passes.dx));
    EXPECT_EQ(again.dweight, passes.dweight);

    const RmsNormPasses<AlignedMatrix<T>> written(device, shape, Accumulate::no);
    const RmsNormPasses<Unaligned> expected_written(cpu_backend(), shape, Accumulate::no);
    EXPECT_LT(relative_error(written.dx.values(), expected_written.dx.values()), kError<T>);
    EXPECT_TRUE(written.dx.surroundings_are_untouched());
  }
}

TEST_P(AlignedNorm, RmsNormIsTheFormulaAndItsDerivative) {
  check_rms_norm<Bf16>(device());
  check_rms_norm<float>(device());
}

// ---- Gated norm

template <typename Matrix>
struct GatedNormPasses {
  Matrix y, z, out, dout, dy, dz;
  std::vector<float> weight, inverse_rms, dweight;

  GatedNormPasses(Backend& device, const Shape& shape)
      : y(shape.rows, shape.width, normal_values(shape.size(), 1, 2)),
        z(shape.rows, shape.width, normal_values(shape.size(), 2, 2)),
        out(shape.rows, shape.width),
        dout(shape.rows, shape.width, normal_values(shape.size(), 3)),
        dy(shape.rows, shape.width),
        dz(shape.rows, shape.width),
        weight(to_f32(normal_values(shape.width, 4))),
        inverse_rms(static_cast<std::size_t>(shape.rows * shape.groups), NAN),
        dweight(weight.size(), 0.5f) {
    device.gated_norm(GatedNormForward{y.view(), z.view(), weight.data(), shape.groups, kEpsilon,
                                       out.mutable_view(), inverse_rms.data()});
    device.gated_norm(GatedNormBackward{y.view(), z.view(), weight.data(), shape.groups, inverse_rms.data(),
                                        dout.view(), dy.mutable_view(), dz.mutable_view(), dweight.data()});
  }
};

/// Groups that a warp holds in 1, 2 and 4 vectors of each lane, and one that it does not; more tokens than
/// are summed up together.
template <typename T>
void check_gated_norm(Backend& device) {
  for (const Shape& shape : {Shape{1, 8}, Shape{130, 24, 3}, Shape{70, 512, 2}, Shape{9, 528, 2},
                             Shape{66, 1032, 2}, Shape{5, 2048, 2}, Shape{3, 1032}}) {
    SCOPED_TRACE(fmt::format("{} x {}, groups {}", shape.rows, shape.width, shape.groups));
    const GatedNormPasses<AlignedMatrix<T>> passes(device, shape);
    const Values weight(passes.weight.begin(), passes.weight.end());
    EXPECT_LT(relative_error(passes.out.values(), oracle::gated_norm(passes.y.values(), passes.z.values(),
                                                                     weight, shape.groups, double{kEpsilon})),
              kError<T>);
    const GatedNormPasses<Unaligned> expected(cpu_backend(), shape);
    EXPECT_LT(relative_error(passes.inverse_rms, expected.inverse_rms), kF32Error);
    EXPECT_LT(relative_error(passes.dy.values(), expected.dy.values()), kError<T>);
    EXPECT_LT(relative_error(passes.dz.values(), expected.dz.values()), kError<T>);
    EXPECT_LT(relative_error(passes.dweight, expected.dweight), kF32Error);
    for (const auto* written : {&passes.out, &passes.dy, &passes.dz})
      EXPECT_TRUE(written->surroundings_are_untouched());

    const GatedNormPasses<AlignedMatrix<T>> again(device, shape);
    EXPECT_TRUE(again.out.same_bytes(passes.out) && again.dy.same_bytes(passes.dy) &&
                again.dz.same_bytes(passes.dz));
    EXPECT_EQ(again.dweight, passes.dweight);
  }
}

TEST_P(AlignedNorm, GatedNormIsTheFormulaAndItsDerivative) {
  check_gated_norm<Bf16>(device());
  check_gated_norm<float>(device());
}

INSTANTIATE_TEST_SUITE_P(All, AlignedNorm, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::norm_aligned_test
