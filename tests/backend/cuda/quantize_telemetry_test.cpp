// SPDX-License-Identifier: Apache-2.0
// Statistics decode what is stored: whatever is wrong with codes or scales, they see it. On the CPU, and what
// threads of a GPU do.

#include "backend/cuda/quantize_kernels.h"

#include <gtest/gtest.h>

#include <functional>
#include <type_traits>

#include "oracle/inputs.h"
#include "support/quant_cases.h"
#include "tetrad/backend/cpu/measure.h"
#include "tetrad/backend/cuda/quantize/generic_run.cuh"

namespace tetrad::cuda {
namespace {

using testing::Between;
using testing::find_amax_in_runs;
using testing::Input;
using testing::options_of;
using testing::prepare;
using testing::with_run;
using tetrad::testing::cpu_backend;
using tetrad::testing::QuantCase;

constexpr std::int64_t kRows = 32, kCols = 256;

using Fault = std::function<void(QuantizedTensor&)>;

void no_fault(QuantizedTensor&) {}
/// Every code is zero, or every value of an operand.
void lose_codes(QuantizedTensor& tensor) { std::memset(tensor.codes.data(), 0, tensor.codes.size()); }
void change_one_code(QuantizedTensor& tensor) { tensor.codes.as<std::uint8_t>()[37] ^= 0x41; }
void lose_one_scale(QuantizedTensor& tensor) {
  std::memset(tensor.scales.data(), 0, tensor.spec.format == Format::fp8 ? sizeof(float) : 1);
}

/// Quantizes, damages what was stored, and measures on the CPU.
QuantStats measured_on_cpu(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                           const Fault& fault) {
  QuantizedTensor tensor;
  cpu_backend().quantize(x, spec, options, tensor);
  fault(tensor);
  return cpu::measure(cpu_backend().threads(), x, tensor, options.telemetry);
}

/// The same by the functions of a GPU's threads.
QuantStats measured_in_runs(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                            const Fault& fault) {
  QuantizedTensor tensor;
  prepare(x, spec, options, tensor);
  QuantProblem p = make_problem(x, spec, options, tensor);
  Between between;
  between.attach(p);
  find_amax_in_runs(p);
  QuantPart part;
  with_run(p, [&]<typename T, int kRun>(T, std::integral_constant<int, kRun>) {
    with_codec(p.format, p.tensor_amax(), p.scaling, [&]<typename Codec>(const Codec& codec) {
      store_tensor_results(p, codec);
      for (std::int64_t i = 0; i < p.runs(); ++i) encode_run<T, Codec, kRun>(p, codec, i);
      fault(tensor);
      for (std::int64_t i = 0; i < p.runs(); ++i) measure_run<T, Codec, kRun>(p, codec, false, i, part);
    });
  });
  QuantStats stats;
  stats.measured = part.measured;
  stats.flushed = part.flushed;
  stats.signal = part.signal;
  stats.noise = part.noise;
  stats.max_error = part.max_error;
  return stats;
}

class StoredTelemetry : public ::testing::TestWithParam<QuantCase> {
 protected:
  /// Calls body with how each backend measures, for every way in which matrices and codes can lie.
  template <typename Body>
  void for_each_layout(const Body& body) const {
    const std::vector<float> values = oracle::make_input("gaussian", kRows, kCols);
    for (const bool transposed : {false, true})
      for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
        SCOPED_TRACE(std::to_string(transposed) + " " + std::to_string(static_cast<int>(order)));
        const Input x(values, kRows, kCols, DType::f32, transposed);
        const QuantSpec& spec = GetParam().spec;
        const auto with = [&](auto measured, Form form) {
          return [&x, &spec, order, measured, form](const Fault& fault) {
            return measured(x.view, spec, options_of(order, form), fault);
          };
        };
        body(with(measured_on_cpu, Form::packed), Form::packed);
        body(with(measured_in_runs, Form::packed), Form::packed);
        if (spec.format != Format::fp8) body(with(measured_in_runs, Form::operand), Form::operand);
      }
  }
};

TEST_P(StoredTelemetry, SeesCodesAndScalesThatAreWrong) {
  for_each_layout([](const auto& measured, Form form) {
    const QuantStats right = measured(no_fault);
    EXPECT_EQ(right.measured, kRows * kCols);
    EXPECT_GT(right.noise, 0);
    EXPECT_LT(right.noise, 0.1 * right.signal);

    const QuantStats nothing = measured(lose_codes);
    EXPECT_EQ(nothing.signal, right.signal);
    EXPECT_EQ(nothing.noise, right.signal) << "all of it is lost";
    EXPECT_GT(nothing.flushed, 0.99 * kRows * kCols);

    const QuantStats one = measured(change_one_code);
    EXPECT_NE(one.noise, right.noise);
    EXPECT_EQ(one.signal, right.signal);
    if (form == Form::packed) {
      EXPECT_GT(measured(lose_one_scale).noise, 1.001 * right.noise);
    }
  });
}

TEST_P(StoredTelemetry, BothBackendsMeasureTheSame) {
  std::vector<QuantStats> all;
  for_each_layout([&](const auto& measured, Form) { all.push_back(measured(no_fault)); });
  for (const QuantStats& stats : all) {
    EXPECT_EQ(stats.flushed, all[0].flushed);
    EXPECT_EQ(stats.max_error, all[0].max_error);
    EXPECT_NEAR(stats.signal, all[0].signal, 1e-12 * all[0].signal);
    EXPECT_NEAR(stats.noise, all[0].noise, 1e-12 * all[0].noise);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoredTelemetry, ::testing::ValuesIn(tetrad::testing::quant_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tetrad::cuda
