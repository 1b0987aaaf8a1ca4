// SPDX-License-Identifier: Apache-2.0
// The stateless linear layer against the products of its decoded operands in double precision; in memory that
// is borrowed; and on parts of tensors. That model/Linear gives the same bits is
// tests/model/linear_test.cpp's.

#include "tetrad/ops/linear.h"

#include <cmath>

#include "support/errors.h"
#include "support/linear_oracle.h"

namespace tetrad::testing::stateless_linear_test {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kIn = 48;
constexpr std::int64_t kOut = 80;
constexpr LinearKey kKey{0x1234567890ull, 3, 2, 6};

QuantSpec spec_of(Format format, BlockShape block, int axis) {
  return {.format = format, .block = block, .axis = axis};
}

/// Every operand in the format: 1-dimensional blocks, and `weight_block` for the weight.
LinearPrecision uniform(Format format, BlockShape block, BlockShape weight_block) {
  LinearPrecision precision;
  precision[Operand::fprop_x] = spec_of(format, block, 1);
  precision[Operand::fprop_w] = spec_of(format, weight_block, 1);
  precision[Operand::dgrad_dy] = spec_of(format, block, 1);
  precision[Operand::dgrad_w] = spec_of(format, weight_block, 0);
  precision[Operand::wgrad_dy] = spec_of(format, block, 0);
  precision[Operand::wgrad_x] = spec_of(format, block, 0);
  return precision;
}

LinearPrecision nvfp4() { return uniform(Format::nvfp4, {1, 16}, {16, 16}); }

LinearPrecision rounded_stochastically() {
  LinearPrecision precision = nvfp4();
  for (auto& spec : precision.operands) spec->rounding = Rounding::stochastic;
  return precision;
}

LinearPrecision transformed() {
  LinearPrecision precision = uniform(Format::nvfp4, {1, 16}, {1, 16});
  for (auto& spec : precision.operands) spec->hadamard = 16;
  precision.signs = SignSource::per_step;
  return precision;
}

LinearPrecision backward_only() {
  LinearPrecision precision = nvfp4();
  precision[Operand::fprop_x].reset();
  precision[Operand::fprop_w].reset();
  return precision;
}

LinearPrecision halves() {
  LinearPrecision precision = nvfp4();
  for (const Operand operand : {Operand::fprop_w, Operand::dgrad_dy, Operand::wgrad_x})
    precision[operand].reset();
  return precision;
}

/// The forward pass alone is quantized, and the backward pass multiplies by what it multiplied.
LinearPrecision straight_through(LinearPrecision precision) {
  for (const Operand operand : {Operand::dgrad_dy, Operand::dgrad_w, Operand::wgrad_dy, Operand::wgrad_x})
    precision[operand].reset();
  precision.weight_source = precision.input_source = Source::fprop;
  return precision;
}

/// The backward pass quantizes what fprop multiplied, along the other axis.
LinearPrecision of_fprop(LinearPrecision precision) {
  precision.weight_source = precision.input_source = Source::fprop;
  return precision;
}

/// MS-EDEN in the backward pass; the sizes of this file's matrices are multiples of 16.
LinearPrecision eden() {
  LinearPrecision precision = uniform(Format::nvfp4, {1, 16}, {1, 16});
  for (const Operand operand : {Operand::dgrad_dy, Operand::dgrad_w, Operand::wgrad_dy, Operand::wgrad_x}) {
    precision[operand]->hadamard = 16;
    precision[operand]->scaling = Scaling::eden;
  }
  precision.signs = SignSource::fresh;
  return precision;
}

struct Case {
  std::string name;
  LinearPrecision precision;
  DType storage = DType::bf16;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  return {{"bf16", {}},
          {"f32", {}, DType::f32},
          {"fp8", uniform(Format::fp8, {1, 128}, {128, 128})},
          {"mxfp4", uniform(Format::mxfp4, {1, 32}, {1, 32})},
          {"nvfp4", nvfp4()},
          {"nvfp4_in_f32", nvfp4(), DType::f32},
          {"stochastic", rounded_stochastically()},
          {"transformed", transformed()},
          {"backward_only", backward_only()},
          {"straight_through", straight_through(nvfp4())},
          {"straight_through_1d", straight_through(uniform(Format::nvfp4, {1, 16}, {1, 16}))},
          {"straight_through_in_f32", straight_through(nvfp4()), DType::f32},
          {"straight_through_fp8", straight_through(uniform(Format::fp8, {1, 128}, {128, 128}))},
          {"straight_through_mxfp4", straight_through(uniform(Format::mxfp4, {1, 32}, {32, 32}))},
          {"of_fprop", of_fprop(nvfp4())},
          {"of_fprop_1d", of_fprop(uniform(Format::nvfp4, {1, 16}, {1, 16}))},
          {"of_fprop_in_f32", of_fprop(uniform(Format::nvfp4, {1, 16}, {1, 16})), DType::f32},
          {"of_fprop_mxfp4", of_fprop(uniform(Format::mxfp4, {1, 32}, {1, 32}))},
          {"eden", eden()},
          {"eden_of_fprop", of_fprop(eden())},
          {"halves", halves()}};
}

/// A layer's matrices and memory.
struct Problem {
  explicit Problem(DType dtype, std::int64_t in = kIn, std::int64_t out = kOut)
      : storage(dtype),
        x({dtype}, kTokens, in, random_values(kTokens * in, 2)),
        dy({dtype}, kTokens, out, random_values(kTokens * out, 3, 1e-3)),
        w({DType::f32}, out, in, random_values(out * in, 1, 0.1)),
        y({DType::f32}, kTokens, out),
        dx({DType::f32}, kTokens, in),
        dw({DType::f32}, out, in) {}

  void forward(const LinearCall& call) {
    const GemmOperand weight = linear_weight(call, Operand::fprop_w, w.view(), storage, fprop_form);
    LinearForward op{x.view(), weight, y.mutable_view(), workspace, &codes};
    op.mean = &mean;
    op.weight_values = w.view();
    saved = linear_forward(call, op);
  }
  void backward(const LinearCall& call, Accumulate accumulate = Accumulate::no) {
    LinearBackward op{dy.view(), saved, workspace};
    op.weight = dgrad_weight(call);
    op.dx = dx.mutable_view();
    op.dw = dw.mutable_view();
    op.accumulate = accumulate;
    linear_backward(call, op);
  }

  GemmOperand dgrad_weight(const LinearCall& call) {
    if (call.precision.weight_form_shared())
      return weight_operand(Operand::fprop_w, w.view(), fprop_form).transposed();
    const MatrixView weight = call.precision.dgrad_requantizes()
                                  ? linear_weight_values(call, fprop_form, storage, workspace)
                                  : w.view();
    return linear_weight(call, Operand::dgrad_w, weight, storage, dgrad_form);
  }

  DType storage;
  TestMatrix x, dy, w, y, dx, dw;
  WeightForm fprop_form, dgrad_form;
  LinearWorkspace workspace;
  QuantizedTensor codes;
  Buffer mean;
  LinearSaved saved;
};

/// Within (K + 8) 2^-24 sum |a b| of the exact product: f32 accumulation in any order; or, where that may be
/// narrower, within kNarrowSum.
::testing::AssertionResult is_product(const TestMatrix& actual, const Values& a, const Values& b,
                                      std::int64_t depth, bool narrow) {
  const auto magnitudes = [](Values values) {
    for (double& value : values) value = std::abs(value);
    return values;
  };
  const Values exact = product(a, b, depth);
  if (narrow) return close(actual.values(), exact, DType::f32, kNarrowSum);
  const Values sums = product(magnitudes(a), magnitudes(b), depth);
  const Values values = actual.values();
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double allowed = static_cast<double>(depth + 8) * 0x1p-24 * sums[i];
    if (!(std::abs(values[i] - exact[i]) <= allowed))
      return ::testing::AssertionFailure()
             << "element " << i << " is " << values[i] << " instead of " << exact[i] << " +- " << allowed;
  }
  return ::testing::AssertionSuccess();
}

class StatelessLinear : public ::testing::TestWithParam<std::tuple<std::string, Case>> {
 protected:
  Backend& device() { return backend(std::get<0>(GetParam())); }
  const Case& c() { return std::get<1>(GetParam()); }
  LinearCall call() { return {device(), c().precision, kKey}; }
};

TEST_P(StatelessLinear, GivesTheProductsOfItsDecodedOperands) {
  Problem p(c().storage);
  p.forward(call());
  p.backward(call());
  const OperandValues values{device(), c().precision, kKey};
  const auto weight = [&](Operand operand) { return values.of_weight(operand, p.w.view(), p.storage); };
  const auto narrow = [&](Operand a, Operand b) { return may_sum_narrowly(device(), c().precision, a, b); };
  EXPECT_TRUE(is_product(p.y, values.of(Operand::fprop_x, p.x), weight(Operand::fprop_w), kIn,
                         narrow(Operand::fprop_x, Operand::fprop_w)));
  EXPECT_TRUE(is_product(p.dx, values.of(Operand::dgrad_dy, p.dy), weight(Operand::dgrad_w), kOut,
                         narrow(Operand::dgrad_dy, Operand::dgrad_w)));
  EXPECT_TRUE(is_product(p.dw, values.of(Operand::wgrad_dy, p.dy), values.of(Operand::wgrad_x, p.x), kTokens,
                         narrow(Operand::wgrad_dy, Operand::wgrad_x)));
  EXPECT_EQ(p.saved.codes != nullptr, c().precision.saved_spec().has_value());
}

TEST_P(StatelessLinear, SavesTheSameWithoutTheProduct) {
  Problem p(c().storage);
  p.forward(call());
  Problem again(c().storage);
  again.saved = linear_save(call(), {again.x.view(), again.codes, again.workspace, nullptr, &again.mean});
  p.backward(call());
  linear_weight(call(), Operand::fprop_w, again.w.view(), again.storage, again.fprop_form);
  again.backward(call());
  EXPECT_TRUE(p.dw.same_bytes(again.dw));
  EXPECT_TRUE(p.dx.same_bytes(again.dx));
}

TEST_P(StatelessLinear, MakesEachGradientAlone) {
  Problem both(c().storage);
  both.forward(call());
  both.backward(call());
  Problem alone(c().storage);
  alone.forward(call());
  LinearBackward op{alone.dy.view(), {}, alone.workspace};
  op.weight = alone.dgrad_weight(call());
  op.dx = alone.dx.mutable_view();
  linear_backward(call(), op);
  LinearBackward second{alone.dy.view(), alone.saved, alone.workspace};
  second.dw = alone.dw.mutable_view();
  second.accumulate = Accumulate::no;
  linear_backward(call(), second);
  EXPECT_TRUE(both.dx.same_bytes(alone.dx));
  EXPECT_TRUE(both.dw.same_bytes(alone.dw));
}

TEST_P(StatelessLinear, MultipliesTensorsOfOneMatrixAsEachAlone) {
  if (!device().has_stacks()) GTEST_SKIP() << "this backend multiplies one at a time";
  const std::vector<std::int64_t> stack = {1, 20, 43};
  Problem p(c().storage);
  Problem alone(c().storage);
  const auto forward = [](Problem& problem, const LinearCall& call, std::int64_t first, std::int64_t count) {
    linear_forward(
        call, {rows(problem.x.view(), first, count),
               linear_weight(call, Operand::fprop_w, problem.w.view(), problem.storage, problem.fprop_form),
               rows(problem.y.mutable_view(), first, count), problem.workspace});
  };
  LinearCall together = call();
  together.stack = stack;
  forward(p, together, 0, kTokens);
  std::int64_t first = 0;
  for (const std::int64_t count : stack) {
    forward(alone, call(), first, count);
    first += count;
  }
  EXPECT_TRUE(p.y.same_bytes(alone.y));
  EXPECT_THROW(p.forward(together), Error) << "nothing can be saved of several";
  LinearPrecision centred = c().precision;
  centred.centre = true;
  LinearCall refused{device(), centred, kKey};
  refused.stack = stack;
  if (centred[Operand::fprop_x]) {
    EXPECT_THROW(forward(p, refused, 0, kTokens), Error) << "a mean spans rows";
  }
}

TEST_P(StatelessLinear, ReportsWhatWasQuantized) {
  Problem p(c().storage);
  LinearStats stats;
  LinearCall reporting = call();
  reporting.telemetry = Telemetry::full;
  reporting.stats = &stats;
  p.forward(reporting);
  p.backward(reporting);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool is_shared = operand == Operand::dgrad_w && c().precision.weight_codes_shared();
    EXPECT_EQ(stats[static_cast<std::size_t>(i)].has_value(),
              c().precision[operand].has_value() && !is_shared)
        << name_of(operand);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StatelessLinear,
                         ::testing::Combine(::testing::ValuesIn(backend_names()),
                                            ::testing::ValuesIn(cases())),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
                         });

class StatelessLinearProperties : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }
};

TEST_P(StatelessLinearProperties, WorksInBorrowedMemory) {
  if (device().name() != "cpu") GTEST_SKIP() << "what tests lend is the program's memory";
  const LinearPrecision precision = nvfp4();
  Problem own(DType::bf16);
  Problem lent(DType::bf16);
  const LinearCall call{device(), precision, kKey};
  const PackedSize size = packed_size(*precision[Operand::wgrad_x], kIn, kTokens);
  std::vector<std::byte> codes(static_cast<std::size_t>(size.codes));
  std::vector<std::byte> scales(static_cast<std::size_t>(size.scales));
  lent.codes.codes = Buffer::borrow(codes);
  lent.codes.scales = Buffer::borrow(scales);
  for (Problem* problem : {&own, &lent}) {
    problem->forward(call);
    problem->backward(call);
  }
  EXPECT_EQ(lent.saved.codes->codes.data(), codes.data());
  EXPECT_EQ(lent.saved.codes->scales.data(), scales.data());
  EXPECT_TRUE(own.y.same_bytes(lent.y));
  EXPECT_TRUE(own.dw.same_bytes(lent.dw));
}

TEST_P(StatelessLinearProperties, MicrobatchesShareTheWeightAndNothingElse) {
  const LinearPrecision precision = rounded_stochastically();
  LinearKey other = kKey;
  ++other.microbatch;
  Problem p(DType::bf16);
  const auto form_of = [&](const LinearKey& key) {
    TestMatrix decoded({DType::f32}, kOut, kIn);
    const LinearCall call{device(), precision, key};
    const GemmOperand weight = linear_weight(call, Operand::fprop_w, p.w.view(), p.storage, p.fprop_form);
    TestMatrix one({DType::bf16}, kIn, kIn, [] {
      Values values(static_cast<std::size_t>(kIn * kIn));
      for (std::int64_t i = 0; i < kIn; ++i) values[static_cast<std::size_t>(i * kIn + i)] = 1;
      return values;
    }());
    device().gemm(weight, one.view(), decoded.mutable_view());
    return decoded.values();
  };
  EXPECT_EQ(form_of(kKey), form_of(other));
  LinearKey next_step = kKey;
  ++next_step.step;
  EXPECT_TRUE(weight_depends_on_step(precision, Operand::fprop_w));
  EXPECT_NE(form_of(kKey), form_of(next_step));

  Problem q(DType::bf16);
  p.forward({device(), precision, kKey});
  q.forward({device(), precision, other});
  EXPECT_NE(p.y.values(), q.y.values());
}

TEST_P(StatelessLinearProperties, AnotherDrawChangesTheBackwardPassAlone) {
  LinearPrecision precision = transformed();  // with signs that are drawn too
  for (auto& spec : precision.operands) spec->rounding = Rounding::stochastic;
  LinearKey other = kKey;
  other.draw = 1;
  Problem p(DType::bf16);
  Problem q(DType::bf16);
  Problem again(DType::bf16);
  for (auto& [problem, key] : {std::pair(&p, kKey), {&q, other}, {&again, other}}) {
    problem->forward({device(), precision, key});
    problem->backward({device(), precision, key});
  }
  EXPECT_TRUE(p.y.same_bytes(q.y));
  EXPECT_FALSE(p.dx.same_bytes(q.dx));
  EXPECT_FALSE(p.dw.same_bytes(q.dw));
  EXPECT_TRUE(again.dx.same_bytes(q.dx));
  EXPECT_TRUE(again.dw.same_bytes(q.dw));
}

/// X = 1 mean^T + X_R: y = Q(X_R) Q(W)^T + 1 (W mean)^T, dW = Q(dy)^T Q(X_R) + (dy^T 1) mean^T.
TEST_P(StatelessLinearProperties, CentredInputsAreQuantizedWithoutTheirMean) {
  for (LinearPrecision precision :
       {nvfp4(), transformed(), eden(), of_fprop(eden()), straight_through(nvfp4()), backward_only()}) {
    SCOPED_TRACE(describe(precision, "f32"));
    precision.centre = true;
    Problem p(DType::f32);
    Values shifted = p.x.values();
    for (std::size_t i = 0; i < shifted.size(); ++i) shifted[i] += 10 + static_cast<double>(i % kIn);
    p.x = TestMatrix({DType::f32}, kTokens, kIn, shifted);
    const LinearCall call{device(), precision, kKey};
    p.forward(call);
    p.backward(call);

    TestMatrix sums({DType::f32}, 1, kIn);
    TestMatrix mean({DType::f32}, 1, kIn);
    TestMatrix rest({DType::f32}, kTokens, kIn);
    device().column_sums({p.x.view(), sums.mutable_view()});
    device().centre({p.x.view(), sums.view(), mean.mutable_view(), rest.mutable_view()});
    const OperandValues values{device(), precision, kKey};
    const Values w_mean = product(mean.values(), p.w.values(), kIn);
    const bool is_quantized = precision[Operand::fprop_x].has_value();
    Values y = product(values.of(Operand::fprop_x, is_quantized ? rest : p.x),
                       values.of_weight(Operand::fprop_w, p.w.view(), p.storage), kIn);
    Values dw = product(values.of(Operand::wgrad_dy, p.dy), values.of(Operand::wgrad_x, rest), kTokens);
    for (std::size_t i = 0; is_quantized && i < y.size(); ++i) y[i] += w_mean[i % kOut];
    const Values dy_sums = product(transposed(p.dy.values(), kTokens, kOut), Values(kTokens, 1.0), kTokens);
    const Values mean_values = mean.values();
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += dy_sums[i / kIn] * mean_values[i % kIn];
    EXPECT_TRUE(close(p.y.values(), y, DType::f32, 1e-5));
    EXPECT_TRUE(close(p.dw.values(), dw, DType::f32, 1e-5));

    Problem again(DType::f32);
    again.x = p.x;
    again.saved = linear_save(call, {again.x.view(), again.codes, again.workspace, nullptr, &again.mean});
    linear_weight(call, Operand::fprop_w, again.w.view(), again.storage, again.fprop_form);
    again.backward(call);
    EXPECT_TRUE(p.dw.same_bytes(again.dw)) << "saved without the product";
  }
}

/// With the weight as it is, y is linear in it: dW is the gradient of <dy, y>, differences in any direction.
TEST_P(StatelessLinearProperties, TheGradientOfACentredLayerIsThatOfItsOutput) {
  LinearPrecision precision;
  precision[Operand::fprop_x] = spec_of(Format::nvfp4, {1, 16}, 1);
  precision.input_source = Source::fprop;
  precision.centre = true;
  const LinearCall call{device(), precision, kKey};
  Problem p(DType::f32);
  Values shifted = p.x.values();
  for (double& value : shifted) value += 2;
  p.x = TestMatrix({DType::f32}, kTokens, kIn, shifted);
  const auto dot = [](const Values& a, const Values& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  p.forward(call);
  p.backward(call);
  const double before = dot(p.dy.values(), p.y.values());
  const Values dw = p.dw.values();
  const Values step = random_values(kOut * kIn, 9, 0.1);
  Values moved = p.w.values();
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step[i];
  p.w = TestMatrix({DType::f32}, kOut, kIn, moved);
  p.forward(call);
  const double difference = dot(p.dy.values(), p.y.values()) - before;
  EXPECT_NEAR(difference, dot(dw, step), 1e-5 * std::abs(difference) + 1e-6);
}

/// What a mean costs a quantizer: with one that is ten times the rest, most of the error of y and dW.
TEST_P(StatelessLinearProperties, CentringTakesTheErrorOfTheMeanAway) {
  const auto error = [&](bool centre) {
    LinearPrecision precision = nvfp4();
    precision.centre = centre;
    Problem p(DType::f32);
    Values shifted = p.x.values();
    for (double& value : shifted) value += 10;
    p.x = TestMatrix({DType::f32}, kTokens, kIn, shifted);
    p.forward({device(), precision, kKey});
    const Values exact = product(p.x.values(), p.w.values(), kIn);
    const Values y = p.y.values();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += (y[i] - exact[i]) * (y[i] - exact[i]);
    return sum;
  };
  EXPECT_LT(error(true), 0.1 * error(false));
}

TEST_P(StatelessLinearProperties, PartsOfTheTokensGiveTheirRowsOfTheWhole) {
  const LinearPrecision precision = rounded_stochastically();
  Problem whole(DType::f32);
  whole.forward({device(), precision, kKey});
  whole.backward({device(), precision, kKey});

  const auto largest = [](const TestMatrix& matrix) {
    double amax = 0;
    for (const double value : matrix.values()) amax = std::max(amax, std::abs(value));
    return static_cast<float>(amax);
  };
  constexpr std::int64_t kHalf = kTokens / 2;
  Problem parts(DType::f32);
  for (const std::int64_t first : {std::int64_t{0}, kHalf}) {
    LinearParts where;
    const auto at = [&](Operand operand) -> OperandPart& { return where[static_cast<std::size_t>(operand)]; };
    for (const Operand operand : {Operand::fprop_x, Operand::dgrad_dy}) at(operand).part.first_row = first;
    for (const Operand operand : {Operand::wgrad_x, Operand::wgrad_dy})
      at(operand).part = {.first_row = 0, .first_col = first, .total_cols = kTokens};
    at(Operand::fprop_x).amax = at(Operand::wgrad_x).amax = largest(parts.x);
    at(Operand::dgrad_dy).amax = at(Operand::wgrad_dy).amax = largest(parts.dy);
    const LinearCall call{device(), precision, kKey, Telemetry::none, &where};
    const GemmOperand weight =
        linear_weight(call, Operand::fprop_w, parts.w.view(), parts.storage, parts.fprop_form);
    const LinearSaved saved =
        linear_forward(call, {rows(parts.x.view(), first, kHalf), weight,
                              rows(parts.y.mutable_view(), first, kHalf), parts.workspace, &parts.codes});
    LinearBackward op{rows(parts.dy.view(), first, kHalf), saved, parts.workspace};
    op.weight = weight.transposed();
    op.dx = rows(parts.dx.mutable_view(), first, kHalf);
    op.dw = parts.dw.mutable_view();
    op.accumulate = first == 0 ? Accumulate::no : Accumulate::yes;
    linear_backward(call, op);
  }
  EXPECT_TRUE(close(parts.y.values(), whole.y.values(), DType::f32, 1e-6));
  EXPECT_TRUE(close(parts.dx.values(), whole.dx.values(), DType::f32, 1e-6));
  EXPECT_TRUE(close(parts.dw.values(), whole.dw.values(), DType::f32, 1e-6));
}

TEST_P(StatelessLinearProperties, RefusesGradientsWithoutWhatTheyNeed) {
  const LinearPrecision precision;
  Problem p(DType::bf16);
  LinearBackward op{p.dy.view(), {}, p.workspace};
  op.dx = p.dx.mutable_view();
  EXPECT_THROW(linear_backward({device(), precision, kKey}, op), Error);
  op.dx.reset();
  op.dw = p.dw.mutable_view();
  EXPECT_THROW(linear_backward({device(), precision, kKey}, op), Error);
}

INSTANTIATE_TEST_SUITE_P(All, StatelessLinearProperties, ::testing::ValuesIn(backend_names()),
                         BackendTestName());

}  // namespace
}  // namespace tetrad::testing::stateless_linear_test
