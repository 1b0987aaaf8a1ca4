// SPDX-License-Identifier: Apache-2.0
// Convolution, scan and decoding step of every backend against the recurrence in double precision.

#include <gtest/gtest.h>

#include "oracle/mamba2.h"
#include "support/activations.h"
#include "support/backends.h"
#include "support/mamba2_problems.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"

namespace tetrad::testing::mamba2_test {
namespace {

constexpr double kF32Error = 1e-5;       //!< relative to the tensor's largest value
constexpr double kGradientError = 1e-4;  //!< f32 gradients against finite differences
constexpr double kBf16Error = 0x1p-8;    //!< the output's rounding, and some for the arithmetic

class Mamba2 : public ::testing::TestWithParam<std::string> {
 protected:
  static Backend& device() { return backend(GetParam(), 0); }
};

Values to_values(const std::vector<float>& x) { return {x.begin(), x.end()}; }

/// `after` is `before` added to what the gradient is when it starts from zero.
void expect_added(const std::vector<float>& after, float before, const std::vector<float>& gradient) {
  for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(after[i], before + gradient[i]);
}

// ---- Convolution

std::vector<ConvProblem> conv_problems() {
  return with_documents<ConvProblem>({{1, 1, 16, 4},
                                      {2, 5, 70, 4},
                                      {3, 67, 64, 4},
                                      {1, 130, 33, 2},
                                      {2, 3, 10, 7},
                                      {2, 30, 10, 7},
                                      {1, 9, 130, 1}});
}

struct ConvPasses {
  Activations x, out, dout, dx;
  std::vector<float> dweight, dbias;

  ConvPasses(Backend& device, const ConvProblem& problem, DType dtype, float start = 0)
      : x(dtype, problem.rows(), problem.channels, problem.x),
        out(dtype, problem.rows(), problem.channels),
        dout(dtype, problem.rows(), problem.channels, problem.dout),
        dx(dtype, problem.rows(), problem.channels),
        dweight(problem.weight.size(), start),
        dbias(problem.bias.size(), start) {
    const std::vector<float> weight = to_f32(problem.weight);
    const std::vector<float> bias = to_f32(problem.bias);
    device.causal_conv(CausalConvForward{problem.batch, problem.sequence, problem.kernel, x.view(),
                                         weight.data(), bias.data(), out.mutable_view(),
                                         pointer_to(problem.document_starts)});
    device.causal_conv(CausalConvBackward{problem.batch, problem.sequence, problem.kernel, x.view(),
                                          weight.data(), bias.data(), dout.view(), dx.mutable_view(),
                                          dweight.data(), dbias.data(), pointer_to(problem.document_starts)});
  }
};

TEST_P(Mamba2, ConvolutionIsTheDefinition) {
  for (const ConvProblem& problem : conv_problems())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const ConvPasses passes(device(), problem, dtype);
      EXPECT_LT(relative_error(passes.out.values(), problem.expected()),
                dtype == DType::f32 ? kF32Error : kBf16Error);
      EXPECT_TRUE(passes.out.surroundings_are_untouched() && passes.dx.surroundings_are_untouched());
    }
}

TEST_P(Mamba2, ConvolutionBackwardIsTheDerivative) {
  for (const ConvProblem& problem : conv_problems()) {
    const ConvPasses passes(device(), problem, DType::f32);
    const auto loss = [&](const Values& x, const Values& weight, const Values& bias) {
      return dot(oracle::causal_conv(problem.batch, problem.sequence, problem.channels, problem.kernel, x,
                                     weight, bias, problem.document_starts),
                 problem.dout);
    };
    EXPECT_LT(gradient_error(passes.dx.values(), problem.x,
                             [&](const Values& x) { return loss(x, problem.weight, problem.bias); }),
              kGradientError);
    EXPECT_LT(gradient_error(to_values(passes.dweight), problem.weight,
                             [&](const Values& weight) { return loss(problem.x, weight, problem.bias); }),
              kGradientError);
    EXPECT_LT(gradient_error(to_values(passes.dbias), problem.bias,
                             [&](const Values& bias) { return loss(problem.x, problem.weight, bias); }),
              kGradientError);
    const ConvPasses bf16(device(), problem, DType::bf16);
    EXPECT_LT(relative_error(bf16.dx.values(), passes.dx.values()), kBf16Error);
    EXPECT_EQ(bf16.dweight, passes.dweight) << "inputs exact in BF16 give the same f32 sums";
  }
}

// ---- Scan

/// Chunks longer than the sequence, and ones that do not divide it; widths that are no multiple of a vector.
const std::vector<Mamba2Shape>& scan_shapes() {
  static const std::vector<Mamba2Shape> all = {
      {1, 1, 1, 16, 1, 16, 16},   {2, 5, 4, 16, 2, 8, 16},    {1, 67, 4, 32, 1, 16, 16},
      {3, 130, 2, 16, 2, 32, 64}, {1, 130, 6, 10, 3, 12, 64}, {1, 67, 2, 64, 1, 64, 256},
      {2, 7, 2, 5, 1, 3, 1},
  };
  return all;
}

/// Every shape, without documents and with them.
std::vector<ScanProblem> scan_problems(Regime regime) {
  std::vector<ScanProblem> problems;
  for (const Mamba2Shape& shape : scan_shapes()) problems.emplace_back(shape, regime);
  return with_documents(std::move(problems));
}

std::string describe(const ScanProblem& problem, Regime regime) {
  return fmt::format("sequence {}, heads {}, regime {}{}", problem.shape.sequence, problem.shape.heads,
                     static_cast<int>(regime), problem.in.document_starts.empty() ? "" : ", documents");
}

/// A forward and a backward pass, and everything they wrote.
struct ScanPasses {
  Activations x, b, c, dt, y, dy, dx, db, dc, ddt;
  std::vector<float> dt_bias, a_log, d, chunk_states, ddt_bias, da_log, dd;
  DocumentStarts document_starts;

  ScanPasses(Backend& device, const ScanProblem& problem, DType dtype, float start = 0)
      : x(dtype, problem.rows(), problem.shape.inner(), problem.in.x),
        b(dtype, problem.rows(), problem.shape.groups * problem.shape.state, problem.in.b),
        c(dtype, problem.rows(), problem.shape.groups * problem.shape.state, problem.in.c),
        dt(dtype, problem.rows(), problem.shape.heads, problem.in.dt),
        y(dtype, problem.rows(), problem.shape.inner()),
        dy(dtype, problem.rows(), problem.shape.inner(), problem.dy),
        dx(dtype, problem.rows(), problem.shape.inner()),
        db(dtype, problem.rows(), problem.shape.groups * problem.shape.state),
        dc(dtype, problem.rows(), problem.shape.groups * problem.shape.state),
        ddt(dtype, problem.rows(), problem.shape.heads),
        dt_bias(to_f32(problem.in.dt_bias)),
        a_log(to_f32(problem.in.a_log)),
        d(to_f32(problem.in.d)),
        chunk_states(static_cast<std::size_t>(problem.states()), NAN),
        ddt_bias(dt_bias.size(), start),
        da_log(dt_bias.size(), start),
        dd(dt_bias.size(), start),
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

TEST_P(Mamba2, ScanIsTheRecurrence) {
  for (const Regime regime : {Regime::usual, Regime::extreme, Regime::remembering})
    for (const ScanProblem& problem : scan_problems(regime))
      for (const DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(describe(problem, regime) + ", " + std::string(name_of(dtype)));
        const ScanPasses passes(device(), problem, dtype);
        Values states;
        const Values expected = oracle::scan(problem.sizes(), problem.in, &states);
        EXPECT_LT(relative_error(passes.y.values(), expected), dtype == DType::f32 ? kF32Error : kBf16Error);
        for (const Activations* written : {&passes.y, &passes.dx, &passes.db, &passes.dc, &passes.ddt})
          EXPECT_TRUE(written->surroundings_are_untouched());
        EXPECT_LT(relative_error(passes.chunk_states, problem.before_chunks(states)), kF32Error);
      }
}

/// The error of the gradient of one of the inputs.
double scan_gradient_error(const ScanProblem& problem, Values oracle::ScanTensors::*input,
                           const Values& gradient) {
  return gradient_error(
      gradient, problem.in.*input,
      [&](const Values& moved) {
        oracle::ScanTensors in = problem.in;
        in.*input = moved;
        return dot(oracle::scan(problem.sizes(), in), problem.dy);
      },
      problem.shape.sequence > 50 ? 16 : 40);
}

TEST_P(Mamba2, ScanBackwardIsTheDerivative) {
  using Tensors = oracle::ScanTensors;
  for (const Regime regime : {Regime::usual, Regime::extreme, Regime::remembering})
    for (const Mamba2Shape& shape : scan_shapes()) {
      const ScanProblem problem(shape, regime);
      SCOPED_TRACE(describe(problem, regime));
      const ScanPasses passes(device(), problem, DType::f32);
      EXPECT_LT(scan_gradient_error(problem, &Tensors::x, passes.dx.values()), kGradientError);
      EXPECT_LT(scan_gradient_error(problem, &Tensors::b, passes.db.values()), kGradientError);
      EXPECT_LT(scan_gradient_error(problem, &Tensors::c, passes.dc.values()), kGradientError);
      EXPECT_LT(scan_gradient_error(problem, &Tensors::dt, passes.ddt.values()), kGradientError);
      EXPECT_LT(scan_gradient_error(problem, &Tensors::dt_bias, to_values(passes.ddt_bias)), kGradientError);
      EXPECT_LT(scan_gradient_error(problem, &Tensors::a_log, to_values(passes.da_log)), kGradientError);
      EXPECT_LT(scan_gradient_error(problem, &Tensors::d, to_values(passes.dd)), kGradientError);
    }
}

/// Against the oracle's gradients: short documents that remember everything have some that are too small
/// for differences.
TEST_P(Mamba2, ScanOfDocumentsBackwardIsTheDerivative) {
  for (const Regime regime : {Regime::usual, Regime::extreme, Regime::remembering})
    for (const Mamba2Shape& shape : scan_shapes()) {
      const ScanProblem problem = ScanProblem(shape, regime).with_documents();
      SCOPED_TRACE(describe(problem, regime));
      const ScanPasses passes(device(), problem, DType::f32);
      const oracle::ScanTensors expected = oracle::scan_backward(problem.sizes(), problem.in, problem.dy);
      EXPECT_LT(relative_error(passes.dx.values(), expected.x), kGradientError);
      EXPECT_LT(relative_error(passes.db.values(), expected.b), kGradientError);
      EXPECT_LT(relative_error(passes.dc.values(), expected.c), kGradientError);
      EXPECT_LT(relative_error(passes.ddt.values(), expected.dt), kGradientError);
      EXPECT_LT(relative_error(passes.ddt_bias, expected.dt_bias), kGradientError);
      EXPECT_LT(relative_error(passes.da_log, expected.a_log), kGradientError);
      EXPECT_LT(relative_error(passes.dd, expected.d), kGradientError);
    }
}

TEST_P(Mamba2, Bf16ScanGradientsAreTheF32OnesRounded) {
  for (const ScanProblem& problem : scan_problems(Regime::usual)) {
    const ScanPasses f32(device(), problem, DType::f32);
    const ScanPasses bf16(device(), problem, DType::bf16);
    EXPECT_LT(relative_error(bf16.dx.values(), f32.dx.values()), kBf16Error);
    EXPECT_LT(relative_error(bf16.db.values(), f32.db.values()), kBf16Error);
    EXPECT_LT(relative_error(bf16.dc.values(), f32.dc.values()), kBf16Error);
    EXPECT_LT(relative_error(bf16.ddt.values(), f32.ddt.values()), kBf16Error);
    EXPECT_EQ(bf16.da_log, f32.da_log) << "inputs exact in BF16 give the same f32 sums";
  }
}

/// Whether two matrices are equal but for rows [first, last).
bool equal_outside(const Activations& one, const Activations& two, std::int64_t rows, std::int64_t first,
                   std::int64_t last) {
  const Values a = one.values();
  const Values b = two.values();
  const std::int64_t cols = std::ssize(a) / rows;
  return std::equal(a.begin(), a.begin() + first * cols, b.begin()) &&
         std::equal(a.begin() + last * cols, a.end(), b.begin() + last * cols);
}

TEST_P(Mamba2, NothingOfADocumentReachesTheOthers) {
  // The document at 65 … 127 becomes another one.
  constexpr std::int64_t kRows = 300;
  constexpr std::int64_t kFirst = 65;
  constexpr std::int64_t kLast = 128;
  const DocumentStarts starts = some_documents(1, kRows);
  ASSERT_EQ(starts[kLast - 1], kFirst);
  ASSERT_EQ(starts[kLast], kLast);
  const auto change = [&](Values& values) {
    const std::int64_t cols = std::ssize(values) / kRows;
    for (std::int64_t i = kFirst * cols; i < kLast * cols; ++i) values[static_cast<std::size_t>(i)] += 3;
  };
  ScanProblem scan = ScanProblem({1, kRows, 2, 16, 1, 16, 32}, Regime::remembering).with_documents();
  const ScanPasses scan_before(device(), scan, DType::f32);
  for (Values* values : {&scan.in.x, &scan.in.b, &scan.in.c, &scan.in.dt, &scan.dy}) change(*values);
  const ScanPasses scan_after(device(), scan, DType::f32);
  for (const auto member :
       {&ScanPasses::y, &ScanPasses::dx, &ScanPasses::db, &ScanPasses::dc, &ScanPasses::ddt})
    EXPECT_TRUE(equal_outside(scan_before.*member, scan_after.*member, kRows, kFirst, kLast));

  ConvProblem conv = ConvProblem(1, kRows, 70, 4).with_documents();
  const ConvPasses conv_before(device(), conv, DType::f32);
  change(conv.x);
  change(conv.dout);
  const ConvPasses conv_after(device(), conv, DType::f32);
  EXPECT_TRUE(equal_outside(conv_before.out, conv_after.out, kRows, kFirst, kLast));
  EXPECT_TRUE(equal_outside(conv_before.dx, conv_after.dx, kRows, kFirst, kLast));
}

TEST_P(Mamba2, GradientsOfParametersAreAddedTo) {
  const ScanProblem scan_problem({1, 40, 4, 16, 2, 16, 16});
  const ScanPasses from_zero(device(), scan_problem, DType::f32);
  const ScanPasses from_three(device(), scan_problem, DType::f32, 3);
  expect_added(from_three.ddt_bias, 3, from_zero.ddt_bias);
  expect_added(from_three.da_log, 3, from_zero.da_log);
  expect_added(from_three.dd, 3, from_zero.dd);
  const ConvProblem conv_problem(1, 20, 70, 4);
  const ConvPasses conv_from_zero(device(), conv_problem, DType::f32);
  const ConvPasses conv_from_three(device(), conv_problem, DType::f32, 3);
  expect_added(conv_from_three.dweight, 3, conv_from_zero.dweight);
  expect_added(conv_from_three.dbias, 3, conv_from_zero.dbias);
}

TEST_P(Mamba2, ScanDoesNotDependOnTheChunk) {
  Mamba2Shape shape{2, 100, 4, 16, 2, 16, 16};
  const ScanPasses short_chunks(device(), ScanProblem(shape), DType::f32);
  shape.chunk = 37;
  const ScanPasses long_chunks(device(), ScanProblem(shape), DType::f32);
  EXPECT_LT(relative_error(long_chunks.y.values(), short_chunks.y.values()), kF32Error);
  EXPECT_LT(relative_error(long_chunks.dx.values(), short_chunks.dx.values()), kF32Error);
  EXPECT_LT(relative_error(long_chunks.ddt.values(), short_chunks.ddt.values()), kF32Error);
  EXPECT_LT(relative_error(long_chunks.da_log, short_chunks.da_log), kF32Error);
}

TEST_P(Mamba2, ChunkStatesAreOptional) {
  const ScanProblem problem({2, 40, 2, 16, 1, 16, 16});
  const ScanPasses passes(device(), problem, DType::f32);
  Activations y(DType::f32, problem.rows(), problem.shape.inner());
  device().scan(ScanForward{problem.shape, passes.inputs(), y.mutable_view(), nullptr});
  EXPECT_TRUE(y == passes.y);
}

TEST_P(Mamba2, DoesNotDependOnTheNumberOfThreads) {
  for (const ScanProblem& problem : scan_problems(Regime::usual)) {
    const ScanPasses one(backend(GetParam(), 1), problem, DType::f32);
    const ScanPasses two(backend(GetParam(), 2), problem, DType::f32);
    EXPECT_TRUE(one.y == two.y && one.dx == two.dx && one.db == two.db && one.dc == two.dc &&
                one.ddt == two.ddt);
    EXPECT_EQ(one.chunk_states, two.chunk_states);
    EXPECT_EQ(one.ddt_bias, two.ddt_bias);
    EXPECT_EQ(one.da_log, two.da_log);
    EXPECT_EQ(one.dd, two.dd);
  }
  for (const ConvProblem& problem : conv_problems()) {
    const ConvPasses one(backend(GetParam(), 1), problem, DType::f32);
    const ConvPasses two(backend(GetParam(), 2), problem, DType::f32);
    EXPECT_TRUE(one.out == two.out && one.dx == two.dx);
    EXPECT_EQ(one.dweight, two.dweight);
    EXPECT_EQ(one.dbias, two.dbias);
  }
}

// ---- Decoding

/// Columns [first, first + cols) of a matrix.
template <typename View>
View columns(View view, std::int64_t first, std::int64_t cols) {
  if (view.dtype == DType::f32)
    view.data = const_cast<float*>(static_cast<const float*>(view.data)) + first;
  else
    view.data = const_cast<Bf16*>(static_cast<const Bf16*>(view.data)) + first;
  view.cols = cols;
  return view;
}

TEST_P(Mamba2, StepsAreTheScanTokenByToken) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t kernel : {1, 2, 4}) {
      const Mamba2Shape shape{1, 45, 4, 16, 2, 24, 16};
      const std::int64_t channels = shape.conv_channels();
      const std::int64_t keys = shape.groups * shape.state;
      const Activations xbc(dtype, shape.sequence, channels, normal_values(shape.sequence * channels, 1));
      const Activations dt(dtype, shape.sequence, shape.heads,
                           normal_values(shape.sequence * shape.heads, 2));
      const auto weight = to_f32(normal_values(channels * kernel, 3, 0.5));
      const auto bias = to_f32(normal_values(channels, 4, 0.5));
      const auto dt_bias = to_f32(normal_values(shape.heads, 5, 0.5, -2));
      const auto a_log = to_f32(normal_values(shape.heads, 6, 0.5, 1));
      const auto d = to_f32(normal_values(shape.heads, 7));

      Activations conv(dtype, shape.sequence, channels);
      Activations y(dtype, shape.sequence, shape.inner());
      device().causal_conv(CausalConvForward{1, shape.sequence, kernel, xbc.view(), weight.data(),
                                             bias.data(), conv.mutable_view()});
      const MatrixView mixed = conv.view();
      const ScanInputs in{columns(mixed, 0, shape.inner()),
                          columns(mixed, shape.inner(), keys),
                          columns(mixed, shape.inner() + keys, keys),
                          dt.view(),
                          dt_bias.data(),
                          a_log.data(),
                          d.data()};
      device().scan(ScanForward{shape, in, y.mutable_view(), nullptr});

      Mamba2Shape one_token = shape;
      one_token.sequence = 1;
      std::vector<float> conv_state(static_cast<std::size_t>((kernel - 1) * channels));
      std::vector<float> ssm_state(static_cast<std::size_t>(shape.inner() * shape.state));
      Values stepped;
      for (std::int64_t t = 0; t < shape.sequence; ++t) {
        Activations out(dtype, 1, shape.inner());
        device().mamba2_step(Mamba2Step{one_token, kernel, xbc.rows(t, 1), dt.rows(t, 1), weight.data(),
                                        bias.data(), dt_bias.data(), a_log.data(), d.data(),
                                        conv_state.data(), ssm_state.data(), out.mutable_view()});
        for (const double value : out.values()) stepped.push_back(value);
      }
      EXPECT_LT(relative_error(stepped, y.values()), dtype == DType::f32 ? kF32Error : kBf16Error);
    }
}

TEST_P(Mamba2, RefusesWhatDoesNotFit) {
  const ScanProblem problem({2, 5, 4, 16, 2, 8, 16});
  ScanPasses passes(device(), problem, DType::f32);
  const ScanForward good{problem.shape, passes.inputs(), passes.y.mutable_view(), nullptr};
  const auto refuses = [&](const auto& change) {
    ScanForward bad = good;
    change(bad);
    EXPECT_THROW(device().scan(bad), Error);
  };
  refuses([](ScanForward& op) { op.shape.sequence = 6; });
  refuses([](ScanForward& op) { op.shape.chunk = 0; });
  refuses([](ScanForward& op) { op.shape.groups = 3; });
  refuses([](ScanForward& op) { op.in.b.cols -= 1; });
  refuses([](ScanForward& op) { op.in.dt.dtype = DType::bf16; });
  refuses([](ScanForward& op) { op.in.a_log = nullptr; });
  refuses([](ScanForward& op) { op.y.rows -= 1; });
  const std::vector<float> weight(16);
  EXPECT_THROW(device().causal_conv(CausalConvForward{3, 5, 4, passes.dt.view(), weight.data(), weight.data(),
                                                      passes.ddt.mutable_view()}),
               Error);
}

INSTANTIATE_TEST_SUITE_P(All, Mamba2, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::mamba2_test
