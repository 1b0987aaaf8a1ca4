// SPDX-License-Identifier: Apache-2.0
// Convolution and scan on views whose rows are aligned to 16 bytes, with the head dimension, states and
// chunks of real models: where backends have their fast forms, which the odd views of mamba2_test.cpp never
// reach.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle/mamba2.h"
#include "support/activations.h"
#include "support/aligned_matrix.h"
#include "support/backends.h"
#include "support/mamba2_problems.h"

namespace tetrad::testing::mamba2_aligned_test {
namespace {

// All relative to the tensor's largest value.
constexpr double kF32Error = 1e-5;
constexpr double kBf16Error = 0x1p-8;  //!< BF16's largest rounding error

/// Backends may carry the states in f32 with factors of 16 bits: products of two BF16 inputs and an f32
/// factor are off by 2^-16 each at most, at random, and so are their sums. Twice that for f32 arithmetic.
constexpr double kStateError = 0x1p-15;

/// What is written as BF16 is rounded once. The states, or their gradients, may go into the products as BF16
/// too, which is once more; those errors differ in sign from product to product, so that their sum is to the
/// sum of the products at most as one of them is to its product.
constexpr double kOutputError = 2 * kBf16Error;

/// The gradients of A_log and dt_bias are f32, and sums over all tokens of what goes through the states,
/// which carries the same rounding as above. Terms of both signs cancel, and the largest value is one of a
/// few heads', which may be small by chance: the errors are more of the result than one is of its term.
constexpr double kSumError = 2 * kBf16Error;

class AlignedMamba2 : public ::testing::TestWithParam<std::string> {
 protected:
  static Backend& device() { return backend(GetParam()); }
};

// ---- Scan

/// One token; part of a tile of 64 tokens; one tile; chunks of one tile, of two and of four, each with a part
/// of one in the end; a chunk of no whole tiles, longer than the sequence. Groups of 1, 2 and 3 heads, and of
/// 16, as nemotron-h-12b has them, whose heads are of 80.
const std::vector<Mamba2Shape>& shapes() {
  static const std::vector<Mamba2Shape> all = {
      {1, 1, 1, 64, 1, 64, 64},     {2, 37, 2, 64, 1, 128, 64},   {1, 64, 2, 64, 2, 64, 64},
      {2, 200, 4, 64, 2, 128, 64},  {1, 300, 6, 64, 2, 64, 128},  {1, 450, 2, 64, 1, 128, 256},
      {1, 100, 3, 64, 3, 64, 1000}, {1, 1, 1, 80, 1, 128, 64},    {2, 37, 3, 80, 1, 64, 64},
      {1, 64, 2, 80, 2, 128, 64},   {2, 200, 4, 80, 2, 128, 64},  {1, 130, 16, 80, 1, 128, 128},
      {1, 450, 2, 80, 1, 64, 256},  {1, 100, 3, 80, 3, 128, 1000}};
  return all;
}

/// A forward and a backward pass, and everything they wrote. Only the time steps are not aligned: nothing is
/// to rely on them.
struct ScanPasses {
  using Matrix = AlignedMatrix<Bf16>;
  std::int64_t rows, inner, keys;
  Matrix x, b, c, y, dy, dx, db, dc;
  Activations dt, ddt;
  std::vector<float> dt_bias, a_log, d, chunk_states, ddt_bias, da_log, dd;
  DocumentStarts document_starts;

  ScanPasses(Backend& device, const ScanProblem& problem)
      : rows(problem.rows()),
        inner(problem.shape.inner()),
        keys(problem.shape.groups * problem.shape.state),
        x(rows, inner, problem.in.x),
        b(rows, keys, problem.in.b),
        c(rows, keys, problem.in.c),
        y(rows, inner),
        dy(rows, inner, problem.dy),
        dx(rows, inner),
        db(rows, keys),
        dc(rows, keys),
        dt(DType::bf16, rows, problem.shape.heads, problem.in.dt),
        ddt(DType::bf16, rows, problem.shape.heads),
        dt_bias(to_f32(problem.in.dt_bias)),
        a_log(to_f32(problem.in.a_log)),
        d(to_f32(problem.in.d)),
        chunk_states(static_cast<std::size_t>(problem.states()), NAN),
        ddt_bias(dt_bias.size()),
        da_log(dt_bias.size()),
        dd(dt_bias.size()),
        document_starts(problem.in.document_starts) {
    device.scan(ScanForward{problem.shape, inputs(), y.mutable_view(), chunk_states.data()});
    device.scan(ScanBackward{problem.shape, inputs(), chunk_states.data(), dy.view(), dx.mutable_view(),
                             db.mutable_view(), dc.mutable_view(), ddt.mutable_view(), ddt_bias.data(),
                             da_log.data(), dd.data()});
  }

  ScanInputs inputs() const {
    return {x.view(),       b.view(),     c.view(), dt.view(),
            dt_bias.data(), a_log.data(), d.data(), pointer_to(document_starts)};
  }
};

void check_scan(Backend& device, bool documents) {
  for (const Mamba2Shape& shape : shapes())
    for (const Regime regime : {Regime::usual, Regime::extreme, Regime::remembering}) {
      SCOPED_TRACE(fmt::format("batch {}, sequence {}, heads of {}, state {}, chunk {}, regime {}",
                               shape.batch, shape.sequence, shape.head_dim, shape.state, shape.chunk,
                               static_cast<int>(regime)));
      const ScanProblem whole(shape, regime);
      const ScanProblem problem = documents ? whole.with_documents() : whole;
      const ScanPasses passes(device, problem);
      Values states;
      const Values y = oracle::scan(problem.sizes(), problem.in, &states);
      EXPECT_LT(relative_error(passes.y.values(), y), kOutputError);
      EXPECT_LT(relative_error(passes.chunk_states, problem.before_chunks(states)), kStateError);

      const oracle::ScanTensors gradients = oracle::scan_backward(problem.sizes(), problem.in, problem.dy);
      EXPECT_LT(relative_error(passes.dx.values(), gradients.x), kOutputError);
      EXPECT_LT(relative_error(passes.db.values(), gradients.b), kOutputError);
      EXPECT_LT(relative_error(passes.dc.values(), gradients.c), kOutputError);
      EXPECT_LT(relative_error(passes.ddt.values(), gradients.dt), kOutputError);
      EXPECT_LT(relative_error(passes.ddt_bias, gradients.dt_bias), kSumError);
      EXPECT_LT(relative_error(passes.da_log, gradients.a_log), kSumError);
      EXPECT_LT(relative_error(passes.dd, gradients.d), kF32Error) << "products of inputs alone";
      for (const auto* written : {&passes.y, &passes.dx, &passes.db, &passes.dc})
        EXPECT_TRUE(written->surroundings_are_untouched());
      EXPECT_TRUE(passes.ddt.surroundings_are_untouched());
    }
}

TEST_P(AlignedMamba2, ScanIsTheRecurrenceAndItsDerivative) { check_scan(device(), false); }

TEST_P(AlignedMamba2, ScanOfDocumentsIsTheRecurrenceAndItsDerivative) { check_scan(device(), true); }

TEST_P(AlignedMamba2, ScanGivesTheSameBitsEveryTime) {
  for (const Mamba2Shape& shape : shapes()) {
    const ScanProblem problem(shape, Regime::remembering);
    const ScanPasses one(device(), problem);
    const ScanPasses two(device(), problem);
    EXPECT_TRUE(one.y.same_bytes(two.y) && one.dx.same_bytes(two.dx) && one.db.same_bytes(two.db) &&
                one.dc.same_bytes(two.dc) && one.ddt == two.ddt);
    EXPECT_EQ(one.chunk_states, two.chunk_states);
    EXPECT_EQ(one.ddt_bias, two.ddt_bias);
    EXPECT_EQ(one.da_log, two.da_log);
    EXPECT_EQ(one.dd, two.dd);
  }
}

TEST_P(AlignedMamba2, ChunkStatesAreOptional) {
  for (const std::int64_t head_dim : {64, 80}) {
    const ScanProblem problem({2, 200, 4, head_dim, 2, 128, 128});
    const ScanPasses passes(device(), problem);
    AlignedMatrix<Bf16> y(problem.rows(), problem.shape.inner());
    device().scan(ScanForward{problem.shape, passes.inputs(), y.mutable_view(), nullptr});
    EXPECT_TRUE(y.same_bytes(passes.y));
  }
}

// ---- Convolution

/// Fewer channels than a vector of threads takes, and more; sequences shorter than the kernel, than a piece
/// and longer than a block's pieces.
std::vector<ConvProblem> conv_problems() {
  return with_documents<ConvProblem>(
      {{1, 1, 8, 4}, {2, 3, 24, 4}, {3, 33, 64, 4}, {2, 300, 264, 4}, {1, 515, 40, 4}});
}

template <typename T>
struct ConvPasses {
  AlignedMatrix<T> x, out, dout, dx;
  std::vector<float> weight, bias, dweight, dbias;

  ConvPasses(Backend& device, const ConvProblem& problem)
      : x(problem.rows(), problem.channels, problem.x),
        out(problem.rows(), problem.channels),
        dout(problem.rows(), problem.channels, problem.dout),
        dx(problem.rows(), problem.channels),
        weight(to_f32(problem.weight)),
        bias(to_f32(problem.bias)),
        dweight(weight.size()),
        dbias(bias.size()) {
    device.causal_conv(CausalConvForward{problem.batch, problem.sequence, problem.kernel, x.view(),
                                         weight.data(), bias.data(), out.mutable_view(),
                                         pointer_to(problem.document_starts)});
    device.causal_conv(CausalConvBackward{problem.batch, problem.sequence, problem.kernel, x.view(),
                                          weight.data(), bias.data(), dout.view(), dx.mutable_view(),
                                          dweight.data(), dbias.data(), pointer_to(problem.document_starts)});
  }
};

/// The gradients in f32, as mamba2_test.cpp holds them against the definition.
struct ConvGradients {
  Activations x, dout, dx;
  std::vector<float> dweight, dbias;

  ConvGradients(Backend& device, const ConvProblem& problem)
      : x(DType::f32, problem.rows(), problem.channels, problem.x),
        dout(DType::f32, problem.rows(), problem.channels, problem.dout),
        dx(DType::f32, problem.rows(), problem.channels),
        dweight(problem.weight.size()),
        dbias(problem.bias.size()) {
    const std::vector<float> weight = to_f32(problem.weight);
    const std::vector<float> bias = to_f32(problem.bias);
    device.causal_conv(CausalConvBackward{problem.batch, problem.sequence, problem.kernel, x.view(),
                                          weight.data(), bias.data(), dout.view(), dx.mutable_view(),
                                          dweight.data(), dbias.data(), pointer_to(problem.document_starts)});
  }
};

template <typename T>
void check_convolution(Backend& device, double tolerance) {
  for (const ConvProblem& problem : conv_problems()) {
    SCOPED_TRACE(fmt::format("sequence {}, channels {}{}", problem.sequence, problem.channels,
                             problem.document_starts.empty() ? "" : ", documents"));
    const ConvPasses<T> passes(device, problem);
    EXPECT_LT(relative_error(passes.out.values(), problem.expected()), tolerance);
    const ConvGradients gradients(cpu_backend(), problem);
    EXPECT_LT(relative_error(passes.dx.values(), gradients.dx.values()), tolerance);
    EXPECT_LT(relative_error(passes.dweight, gradients.dweight), kF32Error);
    EXPECT_LT(relative_error(passes.dbias, gradients.dbias), kF32Error);
    EXPECT_TRUE(passes.out.surroundings_are_untouched() && passes.dx.surroundings_are_untouched());

    const ConvPasses<T> again(device, problem);
    EXPECT_TRUE(again.out.same_bytes(passes.out) && again.dx.same_bytes(passes.dx));
    EXPECT_EQ(again.dweight, passes.dweight);
    EXPECT_EQ(again.dbias, passes.dbias);
  }
}

TEST_P(AlignedMamba2, ConvolutionIsTheDefinitionAndItsDerivative) {
  // The output's rounding, and one f32 error: in the middle of two BF16 values, either is right.
  check_convolution<Bf16>(device(), kBf16Error + kF32Error);
  check_convolution<float>(device(), kF32Error);
}

INSTANTIATE_TEST_SUITE_P(All, AlignedMamba2, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::mamba2_aligned_test
