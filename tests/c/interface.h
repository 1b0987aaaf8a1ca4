// SPDX-License-Identifier: Apache-2.0
#pragma once
// A context of the C interface, and beside it a backend of the same hardware: for its memory, and for what
// the operations give without the interface.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tetrad/c/tetrad.h"
#include "tetrad/ops/backend.h"

namespace tetrad::testing {

inline std::vector<std::string> context_names() {
#ifdef TETRAD_GPU_TESTS
  return {"cpu", "cuda"};
#else
  return {"cpu"};
#endif
}

class CInterface : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const bool cuda = GetParam() == "cuda";
    backend_ = cuda ? make_cuda_backend() : make_cpu_backend();
    expect_ok(cuda ? tetrad_cuda_context(nullptr, &context_) : tetrad_cpu_context(nullptr, &context_));
  }
  void TearDown() override { tetrad_context_free(context_); }

  static void expect_ok(tetrad_status status) { ASSERT_EQ(status, TETRAD_OK) << tetrad_last_error(); }
  static void expect_refused(tetrad_status status, const std::string& word) {
    EXPECT_EQ(status, TETRAD_BAD_INPUT);
    EXPECT_NE(std::string(tetrad_last_error()).find(word), std::string::npos) << tetrad_last_error();
  }

  /// Memory that the context can use.
  Buffer memory(std::size_t bytes) { return backend_->allocate(bytes); }
  template <typename T>
  Buffer upload(const std::vector<T>& values) {
    Buffer buffer = memory(values.size() * sizeof(T));
    backend_->upload(std::as_bytes(std::span(values)), buffer.span<std::byte>());
    backend_->synchronize();
    return buffer;
  }
  /// What is there when both the context and the backend are done.
  std::vector<std::byte> download(const Buffer& buffer) {
    expect_ok(tetrad_synchronize(context_));
    std::vector<std::byte> bytes(buffer.size());
    backend_->download(buffer.span<std::byte>(), bytes);
    return bytes;
  }

  static tetrad_matrix matrix(Buffer& buffer, std::int64_t rows, std::int64_t cols,
                              std::int32_t dtype = TETRAD_F32) {
    return {buffer.data(), rows, cols, cols, 1, dtype, 0};
  }

  std::unique_ptr<Backend> backend_;
  tetrad_context* context_ = nullptr;
};

}  // namespace tetrad::testing
