// SPDX-License-Identifier: Apache-2.0
// NVFP4 operands in the layouts of native products, made on a device: any will do. The product itself needs
// Blackwell. And our own product of FP8 operands, which cuBLASLt computes on Hopper.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "oracle/inputs.h"
#include "support/cpu.h"
#include "support/quantized_layout.h"
#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/gemm/blas.h"
#include "tetrad/backend/cuda/gemm/fp8_product.h"
#include "tetrad/backend/cuda/gemm/native.h"
#include "tetrad/backend/cuda/gemm/scaled_operand.h"
#include "tetrad/core/tensor.h"

namespace tetrad::cuda {
namespace {

using tetrad::testing::swizzle_scales;
using tetrad::testing::transposed;

using tetrad::testing::cpu_backend;

Device& device() {
  static auto* const instance = new Device;  // never destroyed: then the libraries of CUDA may be gone
  return *instance;
}

Buffer uploaded(const Buffer& host) {
  Buffer result = device().allocate(host.size());
  check(cudaMemcpy(result.data(), host.data(), host.size(), cudaMemcpyHostToDevice));
  check(cudaDeviceSynchronize());  // the device's stream does not wait for such copies
  return result;
}

QuantizedTensor uploaded(const QuantizedTensor& host) {
  QuantizedTensor result;
  result.spec = host.spec;
  result.rows = host.rows;
  result.cols = host.cols;
  result.order = host.order;
  result.codes = uploaded(host.codes);
  result.scales = uploaded(host.scales);
  return result;
}

QuantizedTensor quantized(std::int64_t rows, std::int64_t cols, const QuantSpec& spec, CodeOrder order) {
  const std::vector<float> x = oracle::make_input("gaussian", rows, cols);
  QuantizedTensor tensor;
  cpu_backend().quantize(view_of(x.data(), rows, cols), spec, {.order = order, .telemetry = Telemetry::none},
                         tensor);
  return tensor;
}

void expect_on_device(const void* actual, const Buffer& expected) {
  std::vector<std::byte> bytes(expected.size());
  device().synchronize();
  check(cudaMemcpy(bytes.data(), actual, bytes.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0);
}

/// `expected` is the operand as it is multiplied: row-major, not transposed.
void expect_operand(const ScaledOperand& actual, const QuantizedTensor& expected) {
  EXPECT_EQ(actual.dtype, DType::f4);
  EXPECT_EQ(actual.scaling, ScaleMode::vec16_e4m3);
  EXPECT_EQ(actual.rows, expected.rows);
  EXPECT_EQ(actual.depth, expected.cols);
  expect_on_device(actual.codes, expected.codes);
  expect_on_device(actual.scales, swizzle_scales(expected));
}

TEST(NativeOnDevice, OperandsAreThoseOfTheCpu) {
  for (const auto& [m, n, k] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{16, 16, 32},
                                {144, 272, 96},
                                {1040, 528, 2080}}) {
    const QuantizedTensor rows = quantized(m, k, {}, CodeOrder::row_major);
    const QuantizedTensor columns = quantized(m, k, {}, CodeOrder::col_major);
    const QuantizedTensor squares = quantized(k, n, {.block = {16, 16}}, CodeOrder::row_major);
    const QuantizedTensor a = uploaded(rows);
    const QuantizedTensor transposed_a = uploaded(columns);
    const QuantizedTensor b = uploaded(squares);
    const ScaledOperands operands = nvfp4_operands(device(), a, GemmOperand(b).transposed());
    expect_operand(operands.a, rows);
    expect_operand(operands.b, transposed(squares));
    const ScaledOperands transposed = nvfp4_operands(device(), transposed_a, a);
    expect_operand(transposed.a, rows);
    expect_operand(transposed.b, rows);
  }
}

std::vector<float> code_times_scale(const QuantizedTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.cols));
  cpu::decode(tensor, {0, tensor.rows, 0, tensor.cols}, cpu::DecodeTo::operand, values.data(), tensor.cols);
  return values;
}

TEST(NativeOnDevice, ProductIsThatOfTheValues) {
  if (!is_native(Format::nvfp4, device().native_capability()))
    GTEST_SKIP() << "an FP4 product needs compute capability 10.0; this is " << device().properties().name;
  constexpr std::int64_t kM = 272;
  constexpr std::int64_t kN = 528;
  constexpr std::int64_t kK = 1056;
  const QuantizedTensor a = quantized(kM, kK, {}, CodeOrder::row_major);
  const QuantizedTensor b = quantized(kN, kK, {.block = {16, 16}}, CodeOrder::row_major);
  const QuantizedTensor device_a = uploaded(a);
  const QuantizedTensor device_b = uploaded(b);
  constexpr float kBefore = 3.0f;
  std::vector<float> out(kM * kN, kBefore);
  Buffer device_out = device().allocate(out.size() * sizeof(float));
  check(cudaMemcpy(device_out.data(), out.data(), device_out.size(), cudaMemcpyHostToDevice));
  check(cudaDeviceSynchronize());
  ASSERT_TRUE(multiply(device(), nvfp4_operands(device(), device_a, device_b),
                       mutable_view_of(device_out.as<float>(), kM, kN), device().one(), device().one()))
      << "cuBLASLt has no kernel";
  device().synchronize();
  check(cudaMemcpy(out.data(), device_out.data(), device_out.size(), cudaMemcpyDeviceToHost));

  const std::vector<float> x = code_times_scale(a);
  const std::vector<float> y = code_times_scale(b);
  for (std::int64_t i = 0; i < kM; ++i)
    for (std::int64_t j = 0; j < kN; ++j) {
      double sum = kBefore;
      double magnitude = kBefore;
      for (std::int64_t k = 0; k < kK; ++k) {
        const double product = static_cast<double>(x[static_cast<std::size_t>(i * kK + k)]) *
                               static_cast<double>(y[static_cast<std::size_t>(j * kK + k)]);
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out[static_cast<std::size_t>(i * kN + j)], sum, 0x1p-24 * (kK + 8) * magnitude);
    }
}

/// The product of FP8 operands as fp8_product.h computes it, added to `out`.
template <typename T>
void add_fp8_product(const GemmOperand& a, const GemmOperand& b, const float* beta, std::vector<T>& out) {
  Buffer device_out = device().allocate(out.size() * sizeof(T));
  check(cudaMemcpy(device_out.data(), out.data(), device_out.size(), cudaMemcpyHostToDevice));
  check(cudaDeviceSynchronize());
  multiply_fp8(device(), fp8_operands(device(), a, b),
               mutable_view_of(device_out.as<T>(), a.rows(), b.rows()), device().one(), beta);
  device().synchronize();
  check(cudaMemcpy(out.data(), device_out.data(), device_out.size(), cudaMemcpyDeviceToHost));
}

TEST(Fp8Product, IsThatOfTheCpu) {
  if (!is_native(Format::fp8, device().native_capability()))
    GTEST_SKIP() << "FP8 units need compute capability 8.9; this is " << device().properties().name;
  // Matrix units may add the products of a block with fewer bits than f32 has, as in gemm_test.cpp.
  constexpr float kNarrowSum = 0x1p-9f;
  constexpr float kBefore = 3.0f;
  constexpr BlockShape kRows{1, 128};
  constexpr BlockShape kSquares{128, 128};
  for (const auto& [m, n, k] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{16, 16, 16},
                                {128, 128, 128},
                                {144, 272, 336},
                                {272, 400, 1152},
                                {32, 144, 10304}})
    for (const auto& [block_a, block_b] :
         {std::pair{kRows, kRows}, {kRows, kSquares}, {kSquares, kRows}, {kSquares, kSquares}}) {
      SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k << ", blocks of " << block_a.rows
                                        << " and " << block_b.rows << " rows");
      const QuantizedTensor a =
          quantized(m, k, {.format = Format::fp8, .block = block_a}, CodeOrder::row_major);
      const QuantizedTensor b =
          quantized(n, k, {.format = Format::fp8, .block = block_b}, CodeOrder::row_major);
      std::vector<float> expected(static_cast<std::size_t>(m * n));
      cpu_backend().gemm(a, b, mutable_view_of(expected.data(), m, n));
      float largest = 0;
      for (const float value : expected) largest = std::max(largest, std::abs(value));

      const QuantizedTensor device_a = uploaded(a);
      const QuantizedTensor device_b = uploaded(b);
      std::vector<float> f32(expected.size(), NAN);
      add_fp8_product(device_a, device_b, device().zero(), f32);
      std::vector<float> added(expected.size(), kBefore);
      add_fp8_product(device_a, device_b, device().one(), added);
      std::vector<Bf16> bf16(expected.size());
      add_fp8_product(device_a, device_b, device().zero(), bf16);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(f32[i], expected[i], kNarrowSum * largest) << "element " << i;
        ASSERT_EQ(added[i], f32[i] + kBefore) << "element " << i;
        ASSERT_EQ(bf16[i].bits, Bf16::from_f32(f32[i]).bits) << "element " << i;
      }
    }
}

}  // namespace
}  // namespace tetrad::cuda
