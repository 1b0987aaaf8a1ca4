// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations with results as bytes, for tests that compare contexts.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

#include "support/files.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/ops/backend.h"

namespace tetrad::testing {

using Bytes = std::vector<std::byte>;

inline Tensor random_bf16(Backend& backend, std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(static_cast<std::size_t>(rows * cols));
  for (Bf16& value : values) value = Bf16::from_f32(normal(generator));
  Tensor tensor = backend.make_tensor(DType::bf16, rows, cols);
  backend.upload(std::as_bytes(std::span(values)), tensor.bytes());
  return tensor;
}

inline void append(Backend& backend, std::span<const std::byte> memory, Bytes& results) {
  Buffer copy;
  const std::span<const std::byte> bytes = backend.readable(memory, copy);
  results.insert(results.end(), bytes.begin(), bytes.end());
}
inline void append(Backend& backend, const Buffer& buffer, Bytes& results) {
  append(backend, {buffer.data(), buffer.size()}, results);
}
inline void append(Backend& backend, const QuantizedTensor& tensor, Bytes& results) {
  append(backend, tensor.codes, results);
  append(backend, tensor.scales, results);
  append(backend, tensor.device_amax, results);
}

/// Large enough for the kernels of cuBLASLt to be timed.
inline Bytes multiply_large(Backend& backend, unsigned seed) {
  constexpr std::int64_t kSize = 1024;
  const Tensor a = random_bf16(backend, kSize, kSize, seed);
  const Tensor b = random_bf16(backend, kSize, kSize, seed + 1);
  Tensor out = backend.make_tensor(DType::f32, kSize, kSize);
  backend.gemm(a.view(), b.view(), out.view());
  Bytes results;
  append(backend, out.bytes(), results);
  return results;
}

/// A cache of this test alone, so that it begins empty.
class WithEmptyCache : public ::testing::Test {
 protected:
  void SetUp() override {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no thread has been started yet
    ASSERT_EQ(setenv("TETRAD_CACHE", folder_.file("cache").c_str(), 1), 0);
  }
  void TearDown() override {
    unsetenv("TETRAD_CACHE");  // NOLINT(concurrency-mt-unsafe)
  }

  TemporaryFolder folder_;
};

}  // namespace tetrad::testing
