// Every quantizer of the CUDA backend against the CPU's bytes, then the speed of those that training uses
// beside that of a copy. For a machine with a GPU; not part of the default build.

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "oracle/inputs.h"
#include "support/quant_cases.h"
#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cpu/quantize.h"
#include "tetrad/backend/cuda/error.h"
#include "tetrad/backend/cuda/quantize.h"
#include "tetrad/backend/cuda/quantize_kernels.h"

namespace tetrad::cuda {
namespace {

constexpr RandomStream kRandom{.seed = 0x123456789ABCDEFull, .step = 7, .microbatch = 3, .tensor = 42};

struct Checker {
  Device device;
  std::int64_t checks = 0;
  std::int64_t failures = 0;

  void expect(bool right, const std::string& what) {
    ++checks;
    if (right) return;
    if (++failures <= 40) fmt::print("FAILED {}\n", what);
  }
  template <typename T>
  std::vector<T> download(const Buffer& buffer) const {
    std::vector<T> host(buffer.size() / sizeof(T));
    device.synchronize();
    if (!host.empty())
      check(cudaMemcpy(host.data(), buffer.data(), host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  Buffer upload(const void* data, std::size_t bytes) const {
    Buffer buffer = device.allocate(bytes);
    if (bytes > 0) check(cudaMemcpy(buffer.data(), data, bytes, cudaMemcpyHostToDevice));
    return buffer;
  }
};

/// A matrix as consumed, by rows or transposed, with a gap between its lines, on both sides.
struct Input {
  std::vector<std::byte> host;
  Buffer device;
  MatrixView host_view, device_view;

  Input(Checker& checker, const std::vector<float>& x, std::int64_t rows, std::int64_t cols, DType dtype,
        bool transposed, std::int64_t offset, std::int64_t gap) {
    const std::int64_t lines = transposed ? cols : rows;
    const std::int64_t stride = (transposed ? rows : cols) + gap;
    const std::size_t size = dtype == DType::bf16 ? sizeof(Bf16) : sizeof(float);
    host.assign(static_cast<std::size_t>(lines * stride + offset) * size, std::byte{0x7F});
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < cols; ++col) {
        const float value = x[static_cast<std::size_t>(row * cols + col)];
        const Bf16 rounded = Bf16::from_f32(value);
        const auto at =
            static_cast<std::size_t>(offset + (transposed ? col * stride + row : row * stride + col));
        std::memcpy(host.data() + at * size,
                    dtype == DType::bf16 ? static_cast<const void*>(&rounded) : &value, size);
      }
    device = checker.upload(host.data(), host.size());
    const auto view = [&](const std::byte* data) -> MatrixView {
      return {data + static_cast<std::size_t>(offset) * size,
              dtype,
              rows,
              cols,
              transposed ? 1 : stride,
              transposed ? stride : 1};
    };
    host_view = view(host.data());
    device_view = view(device.data());
  }
};

std::vector<Bf16> operand_of(const QuantizedTensor& packed) {
  std::vector<float> values(static_cast<std::size_t>(packed.rows * packed.cols));
  cpu::decode(packed, {0, packed.rows, 0, packed.cols}, cpu::DecodeTo::operand, values.data(),
              packed.order == CodeOrder::row_major ? packed.cols : packed.rows);
  std::vector<Bf16> result;
  for (const float value : values) result.push_back(Bf16::from_f32(value));
  return result;
}

template <typename T>
bool same(const std::vector<T>& a, const T* b, std::size_t count) {
  return a.size() == count && (count == 0 || std::memcmp(a.data(), b, count * sizeof(T)) == 0);
}

/// One tensor that the device has quantized against the CPU's, which is packed.
void compare(Checker& checker, const QuantizedTensor& actual, const QuantizedTensor& expected,
             const std::string& what) {
  const float amax = checker.download<float>(actual.device_amax).at(0);
  const bool poisoned = std::isnan(expected.amax);
  checker.expect(poisoned ? std::isnan(amax) : amax == expected.amax, what + ": amax");
  if (actual.form == Form::operand) {
    const auto values = checker.download<Bf16>(actual.codes);
    if (poisoned)
      checker.expect(std::ranges::all_of(values, [](Bf16 value) { return std::isnan(value.to_f32()); }),
                     what + ": a poisoned operand");
    else
      checker.expect(
          same(values, operand_of(expected).data(), static_cast<std::size_t>(expected.rows * expected.cols)),
          what + ": operand");
    return;
  }
  checker.expect(
      same(checker.download<std::byte>(actual.codes), expected.codes.data(), expected.codes.size()),
      what + ": codes");
  checker.expect(
      same(checker.download<std::byte>(actual.scales), expected.scales.data(), expected.scales.size()),
      what + ": scales");
}

void check_decoding(Checker& checker, const QuantizedTensor& tensor, const QuantizedTensor& expected,
                    const std::string& what) {
  const auto elements = static_cast<std::size_t>(expected.rows * expected.cols);
  std::vector<float> values(elements);
  cpu::dequantize(expected, mutable_view_of(values.data(), expected.rows, expected.cols));
  const Buffer decoded = checker.device.allocate(elements * sizeof(float));
  dequantize(
      checker.device, tensor,
      {const_cast<std::byte*>(decoded.data()), DType::f32, expected.rows, expected.cols, expected.cols, 1});
  const auto actual = checker.download<float>(decoded);
  const bool poisoned = std::isnan(expected.amax);
  checker.expect(poisoned ? std::ranges::all_of(actual, [](float value) { return std::isnan(value); })
                          : same(actual, values.data(), elements),
                 what + ": dequantize");
  if (tensor.form != Form::packed || expected.spec.format == Format::fp8 || poisoned) return;
  Buffer expanded = checker.device.allocate(elements * sizeof(Bf16));
  expand(checker.device, tensor, expanded.as<Bf16>());
  checker.expect(same(checker.download<Bf16>(expanded), operand_of(expected).data(), elements),
                 what + ": expand");
}

void check_statistics(Checker& checker, const QuantStats& a, const QuantStats& b, const std::string& what) {
  const bool counts = a.non_finite == b.non_finite && a.blocks == b.blocks && a.measured == b.measured &&
                      a.zero_scale_blocks == b.zero_scale_blocks && a.flushed == b.flushed &&
                      a.saturated == b.saturated;
  checker.expect(counts, what + ": counts");
  checker.expect(b.non_finite > 0 || (std::abs(a.signal - b.signal) <= 1e-5 * b.signal &&
                                      std::abs(a.noise - b.noise) <= 1e-5 * b.noise + 1e-13 * b.signal),
                 what + ": sums");
}

void check_case(Checker& checker, const tetrad::testing::QuantCase& quantizer, const std::string& kind,
                std::int64_t rows, std::int64_t cols, float bad = 0) {
  const QuantSpec& spec = quantizer.spec;
  if ((spec.hadamard > 0 && cols % spec.hadamard != 0) || (spec.block.rows == 16 && rows % 16 != 0)) return;
  std::vector<float> x = oracle::rounded_to_bf16(oracle::make_input(kind, rows, cols));
  if (bad != 0) x[x.size() / 3] = bad;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool transposed : {false, true})
      for (const auto& [offset, gap] : {std::pair{0, 8}, {3, 5}}) {
        const Input input(checker, x, rows, cols, dtype, transposed, offset, gap);
        for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
          QuantizeOptions options{
              .random = kRandom, .part = {48, 32, 8192}, .order = order, .telemetry = Telemetry::full};
          QuantizedTensor expected;
          const QuantStats stats = cpu::quantize(input.host_view, spec, options, expected);
          for (const Form form : {Form::packed, Form::operand})
            for (const Telemetry telemetry : {Telemetry::none, Telemetry::full}) {
              options.form = form;
              options.telemetry = telemetry;
              const std::string what =
                  fmt::format("{} {} {}x{} {} {}offset {} order {} form {} telemetry {}", quantizer.name,
                              kind, rows, cols, name_of(dtype), transposed ? "transposed " : "", offset,
                              static_cast<int>(order), static_cast<int>(form), static_cast<int>(telemetry));
              QuantizedTensor actual;
              const QuantStats measured = quantize(checker.device, input.device_view, spec, options, actual);
              compare(checker, actual, expected, what);
              check_decoding(checker, actual, expected, what);
              if (telemetry == Telemetry::full) check_statistics(checker, measured, stats, what);
            }
        }
      }
}

void check_two(Checker& checker, const std::string& kind, std::int64_t rows, std::int64_t cols,
               float bad = 0) {
  std::vector<float> x = oracle::rounded_to_bf16(oracle::make_input(kind, rows, cols));
  if (bad != 0) x[x.size() / 3] = bad;
  const Input input(checker, x, rows, cols, DType::bf16, false, 0, 8);
  for (const Rounding row_rounding : {Rounding::nearest, Rounding::stochastic})
    for (const Rounding col_rounding : {Rounding::nearest, Rounding::stochastic_hardware})
      for (const int hadamard : {0, 16})
        for (const auto& [row_form, col_form] : {std::pair{Form::operand, Form::packed},
                                                 {Form::operand, Form::operand},
                                                 {Form::packed, Form::packed}}) {
          const QuantSpec row_spec{.rounding = row_rounding};
          const QuantSpec col_spec{.axis = 0, .rounding = col_rounding, .hadamard = hadamard};
          QuantizeOptions row_options{.random = kRandom, .telemetry = Telemetry::none};
          QuantizeOptions col_options{.random = {.seed = 9, .tensor = 5},
                                      .order = CodeOrder::col_major,
                                      .telemetry = Telemetry::none};
          QuantizedTensor row, column, row_expected, col_expected;
          cpu::quantize(input.host_view, row_spec, row_options, row_expected);
          cpu::quantize(input.host_view, col_spec, col_options, col_expected);
          row_options.form = row_form;
          col_options.form = col_form;
          quantize_two(checker.device, input.device_view, row_spec, row_options, row, col_spec, col_options,
                       column);
          const std::string what = fmt::format("two {} {}x{} {} {} hadamard {} forms {} {}", kind, rows, cols,
                                               name_of(row_rounding), name_of(col_rounding), hadamard,
                                               static_cast<int>(row_form), static_cast<int>(col_form));
          compare(checker, row, row_expected, what + " row");
          compare(checker, column, col_expected, what + " column");
        }
}

/// FP8 1x128: the columns in either order.
void check_two_fp8(Checker& checker, const std::string& kind, std::int64_t rows, std::int64_t cols,
                   float bad = 0) {
  std::vector<float> x = oracle::rounded_to_bf16(oracle::make_input(kind, rows, cols));
  if (bad != 0) x[x.size() / 3] = bad;
  const Input input(checker, x, rows, cols, DType::bf16, false, 0, 8);
  const QuantSpec row_spec{.format = Format::fp8, .block = {1, 128}};
  const QuantSpec col_spec{.format = Format::fp8, .block = {1, 128}, .axis = 0};
  for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major}) {
    const QuantizeOptions row_options{.telemetry = Telemetry::none};
    const QuantizeOptions col_options{.order = order, .telemetry = Telemetry::none};
    QuantizedTensor row, column, row_expected, col_expected;
    cpu::quantize(input.host_view, row_spec, row_options, row_expected);
    cpu::quantize(input.host_view, col_spec, col_options, col_expected);
    quantize_two(checker.device, input.device_view, row_spec, row_options, row, col_spec, col_options,
                 column);
    const std::string what =
        fmt::format("two fp8 {} {}x{} order {}", kind, rows, cols, static_cast<int>(order));
    compare(checker, row, row_expected, what + " row");
    compare(checker, column, col_expected, what + " column");
  }
}

void check_all(Checker& checker) {
  constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{16, 16},   {5, 48},    {130, 400}, {7, 1024},
                                                               {304, 272}, {4096, 16}, {1, 16}};
  for (const auto& quantizer : tetrad::testing::quant_cases()) {
    for (const std::string& kind : oracle::input_kinds()) check_case(checker, quantizer, kind, 48, 384);
    for (const auto& [rows, cols] : kShapes) check_case(checker, quantizer, "heavy_tailed", rows, cols);
    check_case(checker, quantizer, "gaussian", 32, 256, std::numeric_limits<float>::quiet_NaN());
    check_case(checker, quantizer, "gaussian", 32, 256, -std::numeric_limits<float>::infinity());
  }
  for (const std::string& kind : oracle::input_kinds()) check_two(checker, kind, 64, 272);
  check_two(checker, "heavy_tailed", 1040, 528);
  check_two(checker, "gaussian", 32, 128, std::numeric_limits<float>::quiet_NaN());
  for (const std::string& kind : oracle::input_kinds()) check_two_fp8(checker, kind, 128, 384);
  check_two_fp8(checker, "heavy_tailed", 1040, 528);
  check_two_fp8(checker, "heavy_tailed", 16, 16);
  check_two_fp8(checker, "gaussian", 144, 272, std::numeric_limits<float>::quiet_NaN());
  fmt::print("{} checks, {} failures\n", checker.checks, checker.failures);
}

// ---------------------------------------------------------------------------------------------------------------

/// Median milliseconds.
double time_of(const Device& device, const std::function<void()>& work) {
  constexpr int kRepeats = 21;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < kRepeats + 3; ++i) {
    check(cudaEventRecord(begin, device.stream()));
    work();
    check(cudaEventRecord(end, device.stream()));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) times.push_back(ms);
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  std::ranges::sort(times);
  return times[times.size() / 2];
}

void time_all(Checker& checker) {
  constexpr std::int64_t kRows = 16384, kCols = 8192;
  constexpr double kElements = static_cast<double>(kRows * kCols);
  Device& device = checker.device;
  const std::vector<float> block = oracle::make_input("gaussian", 1024, 1024);
  const Buffer f32 = device.allocate(static_cast<std::size_t>(kRows * kCols) * sizeof(float));
  const Buffer bf16 = device.allocate(static_cast<std::size_t>(kRows * kCols) * sizeof(Bf16));
  std::vector<Bf16> rounded;
  for (const float value : block) rounded.push_back(Bf16::from_f32(value));
  for (std::size_t at = 0; at < kRows * kCols; at += block.size()) {
    check(cudaMemcpy(const_cast<std::byte*>(f32.data()) + at * 4, block.data(), block.size() * 4,
                     cudaMemcpyHostToDevice));
    check(cudaMemcpy(const_cast<std::byte*>(bf16.data()) + at * 2, rounded.data(), rounded.size() * 2,
                     cudaMemcpyHostToDevice));
  }
  Buffer copy = device.allocate(bf16.size());
  const double copy_ms = time_of(device, [&] {
    check(cudaMemcpyAsync(copy.data(), bf16.data(), bf16.size(), cudaMemcpyDeviceToDevice, device.stream()));
  });
  const double copy_rate = 4.0 * kElements / copy_ms / 1e9;
  fmt::print("copy {:.3f} ms, {:.2f} TB/s\n", copy_ms, copy_rate);

  const MatrixView x = view_of(bf16.as<Bf16>(), kRows, kCols);
  const MatrixView weights = view_of(f32.as<float>(), kRows, kCols);
  QuantizedTensor out, other;
  Buffer state = device.allocate(sizeof(QuantState));
  const float amax = 6.0f;
  check(cudaMemcpy(state.data(), &amax, sizeof(amax), cudaMemcpyHostToDevice));
  const auto report = [&](const std::string& name, double bytes, const std::function<void()>& work) {
    const double ms = time_of(device, work);
    const double rate = bytes * kElements / ms / 1e9;
    fmt::print("{:<58} {:8.3f} ms {:6.2f} TB/s {:5.2f} of copy\n", name, ms, rate, rate / copy_rate);
  };
  const auto both_ways = [&](const std::string& name, const MatrixView& view, const QuantSpec& spec,
                             CodeOrder order, Form form) {
    const QuantizeOptions options{
        .random = kRandom, .order = order, .form = form, .telemetry = Telemetry::none};
    const double read = view.dtype == DType::bf16 ? 2 : 4;
    const double written = form == Form::operand ? 2 : 0.5625;
    report(name + ", all", read + written, [&] { quantize(device, view, spec, options, out); });
    QuantProblem p = make_problem(spec.axis == 0 ? view.transposed() : view, spec, options, out);
    p.state = state.as<QuantState>();
    report(name + ", second pass", read + written, [&] {
      if (suits_rows(p))
        encode_rows(device, p);
      else if (suits_columns(p))
        encode_columns(device, p);
      else if (suits_squares(p))
        encode_squares(device, p);
      else
        fmt::print("(no fast kernel) ");
    });
    out = {};
  };
  constexpr auto kRowMajor = CodeOrder::row_major;
  constexpr auto kColMajor = CodeOrder::col_major;
  const QuantSpec sr{.rounding = Rounding::stochastic};
  const QuantSpec rht{.axis = 0, .hadamard = 16};
  const QuantSpec rht_sr{.axis = 0, .rounding = Rounding::stochastic, .hadamard = 16};
  both_ways("1x16 nearest packed", x, {}, kRowMajor, Form::packed);
  both_ways("1x16 nearest operand", x, {}, kRowMajor, Form::operand);
  both_ways("1x16 stochastic packed", x, sr, kRowMajor, Form::packed);
  both_ways("1x16 stochastic operand", x, sr, kRowMajor, Form::operand);
  both_ways("along tokens, nearest, packed", x, {.axis = 0}, kColMajor, Form::packed);
  both_ways("along tokens, RHT 16, nearest, packed", x, rht, kColMajor, Form::packed);
  both_ways("along tokens, RHT 16, stochastic, packed", x, rht_sr, kColMajor, Form::packed);
  both_ways("along tokens, RHT 16, stochastic, operand", x, rht_sr, kColMajor, Form::operand);
  both_ways("16x16 nearest operand", x, {.block = {16, 16}}, kRowMajor, Form::operand);
  both_ways("16x16 nearest operand, f32", weights, {.block = {16, 16}}, kRowMajor, Form::operand);
  both_ways("16x16 nearest packed, f32", weights, {.block = {16, 16}}, kRowMajor, Form::packed);

  const QuantizeOptions packed{.random = kRandom, .telemetry = Telemetry::none};
  const QuantizeOptions packed_in_place{.random = kRandom, .order = kColMajor, .telemetry = Telemetry::none};
  const QuantSpec fp8_rows{.format = Format::fp8, .block = {1, 128}};
  const QuantSpec fp8_cols{.format = Format::fp8, .block = {1, 128}, .axis = 0};
  const QuantSpec fp8_squares{.format = Format::fp8, .block = {128, 128}};
  report("fp8 1x128 rows", 3.0, [&] { quantize(device, x, fp8_rows, packed, other); });
  report("fp8 1x128 columns, turned", 3.0, [&] { quantize(device, x, fp8_cols, packed, other); });
  report("fp8 1x128 columns, in place", 3.0, [&] { quantize(device, x, fp8_cols, packed_in_place, other); });
  report("fp8 1x128 two: rows + columns turned", 4.0,
         [&] { quantize_two(device, x, fp8_rows, packed, out, fp8_cols, packed, other); });
  report("fp8 128x128", 3.0, [&] { quantize(device, x, fp8_squares, packed, other); });
  report("fp8 128x128, f32", 5.0, [&] { quantize(device, weights, fp8_squares, packed, other); });
  report("fp8 tensor (generic kernels)", 3.0, [&] {
    quantize(device, x, {Format::fp8, BlockShape::whole()}, packed, other);
  });
  const QuantizeOptions operand{.random = kRandom, .form = Form::operand, .telemetry = Telemetry::none};
  const QuantizeOptions operand_in_place{
      .random = kRandom, .order = kColMajor, .form = Form::operand, .telemetry = Telemetry::none};
  const QuantSpec mx{.format = Format::mxfp4, .block = {1, 32}};
  const QuantSpec mx_sr{.format = Format::mxfp4, .block = {1, 32}, .rounding = Rounding::stochastic};
  QuantSpec mx_cols = mx;
  mx_cols.axis = 0;
  QuantSpec mx_rht = mx_cols;
  mx_rht.hadamard = 32;
  QuantSpec mx_rht_sr = mx_rht;
  mx_rht_sr.rounding = Rounding::stochastic;
  report("mxfp4 rows, nearest packed", 2.53, [&] { quantize(device, x, mx, packed, other); });
  report("mxfp4 rows, nearest operand", 4.0, [&] { quantize(device, x, mx, operand, other); });
  report("mxfp4 rows, stochastic operand", 4.0, [&] { quantize(device, x, mx_sr, operand, other); });
  report("mxfp4 rows, nearest operand, f32", 6.0, [&] { quantize(device, weights, mx, operand, other); });
  report("mxfp4 columns, nearest operand, f32", 6.0,
         [&] { quantize(device, weights, mx_cols, operand_in_place, other); });
  report("mxfp4 columns, RHT 32 nearest packed", 2.53,
         [&] { quantize(device, x, mx_rht, packed_in_place, other); });
  report("mxfp4 columns, RHT 32 stochastic operand", 4.0,
         [&] { quantize(device, x, mx_rht_sr, operand_in_place, other); });

  const QuantizeOptions row_options{.random = kRandom, .form = Form::operand, .telemetry = Telemetry::none};
  const QuantizeOptions col_options{.random = kRandom, .order = kColMajor, .telemetry = Telemetry::none};
  report("two: nearest operand + RHT nearest packed, all", 2 + 2 + 0.5625,
         [&] { quantize_two(device, x, {}, row_options, out, rht, col_options, other); });
  report("two: stochastic operand + RHT stochastic packed, all", 2 + 2 + 0.5625,
         [&] { quantize_two(device, x, sr, row_options, out, rht_sr, col_options, other); });
  report("two: stochastic packed + RHT stochastic packed, all", 2 + 2 * 0.5625,
         [&] { quantize_two(device, x, sr, packed, out, rht_sr, col_options, other); });
  report("expand, column-major", 2 + 0.5625, [&] { expand(device, other, copy.as<Bf16>()); });
  QuantProblem plain = make_problem(x, {}, row_options, out);
  plain.state = state.as<QuantState>();
  report("first pass: plain amax", 2, [&] { find_plain_amax(device, plain); });
  QuantProblem transformed = make_problem(x.transposed(), rht, col_options, other);
  transformed.state = state.as<QuantState>();
  report("first pass: RHT 16 along tokens", 2, [&] { find_amax_of_columns(device, transformed); });
  report("first pass: both", 2, [&] { find_amax_of_both(device, plain, transformed); });
}

}  // namespace
}  // namespace tetrad::cuda

int main() try {
  tetrad::cuda::Checker checker;
  tetrad::cuda::check_all(checker);
  tetrad::cuda::time_all(checker);
  return checker.failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
