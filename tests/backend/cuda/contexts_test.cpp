// SPDX-License-Identifier: Apache-2.0
// What belongs to a context on a GPU: its stream, its choice of kernels, what it records. What went wrong in
// one operation does not stay with it. (backend/contexts_test.cpp: contexts side by side.)

#include "support/contexts.h"

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "tetrad/core/error.h"

namespace tetrad::testing::cuda_contexts_test {
namespace {

using CudaContexts = WithEmptyCache;

TEST_F(CudaContexts, AgreeOnTheKernelsOfAProductThatBothTimeFirst) {
  Bytes results[2];
  const auto run = [&](unsigned i) { results[i] = multiply_large(*make_cuda_backend(), 1); };
  std::thread first(run, 0u);
  std::thread second(run, 1u);
  first.join();
  second.join();
  ASSERT_FALSE(results[0].empty());
  EXPECT_TRUE(results[0] == results[1]);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "cache"));
}

TEST_F(CudaContexts, TimeNothingWhenToldNotTo) {
  const std::unique_ptr<Backend> backend = make_cuda_backend({.tune = false});
  EXPECT_FALSE(multiply_large(*backend, 1).empty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
}

TEST_F(CudaContexts, WorkOnAStreamFromOutside) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    const std::unique_ptr<Backend> backend = make_cuda_backend({.stream = stream});
    const Tensor x = random_bf16(*backend, 64, 64, 1);
    Tensor sum = backend->make_tensor(DType::bf16, 64, 64);
    // An event on the stream is enough to wait for the operation.
    cudaEvent_t added = nullptr;
    ASSERT_EQ(cudaEventCreate(&added), cudaSuccess);
    backend->add({x.view(), x.view(), sum.view()});
    ASSERT_EQ(cudaEventRecord(added, stream), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(added), cudaSuccess);
    std::vector<Bf16> in(64 * 64);
    std::vector<Bf16> out(64 * 64);
    ASSERT_EQ(cudaMemcpy(in.data(), x.bytes().data(), x.bytes().size(), cudaMemcpyDeviceToHost), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(out.data(), sum.bytes().data(), sum.bytes().size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i].to_f32(), 2 * in[i].to_f32());
    ASSERT_EQ(cudaEventDestroy(added), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess) << "it is not the context's to destroy";
}

TEST_F(CudaContexts, BuffersOutliveTheContext) {
  Tensor tensor;
  {
    const std::unique_ptr<Backend> backend = make_cuda_backend();
    tensor = random_bf16(*backend, 64, 64, 1);
    backend->synchronize();
  }
  std::vector<Bf16> values(64 * 64);
  EXPECT_EQ(cudaMemcpy(values.data(), tensor.bytes().data(), tensor.bytes().size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  tensor = {};
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaContexts, ACopyIntoTooLittleMemoryIsRefused) {
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  const Tensor large = random_bf16(*backend, 16, 16, 1);
  Tensor small = backend->make_tensor(DType::bf16, 8, 16);
  EXPECT_THROW(backend->copy(large.bytes(), small.bytes()), Error);
}

/// Operations work, and can be recorded and replayed.
void expect_usable(Backend& backend) {
  const Tensor x = random_bf16(backend, 64, 64, 1);
  Tensor sum = backend.make_tensor(DType::bf16, 64, 64);
  const auto add = [&] { backend.add({x.view(), x.view(), sum.view()}); };
  const auto read = [&] {
    Bytes bytes;
    append(backend, sum.bytes(), bytes);
    return bytes;
  };
  add();
  const Bytes expected = read();
  backend.set_to_zero(sum.bytes());
  const std::function<void()> replay = backend.record(add);
  ASSERT_TRUE(replay);
  EXPECT_FALSE(read() == expected) << "what is recorded must not run";
  replay();
  EXPECT_TRUE(read() == expected);
}

TEST_F(CudaContexts, AnExceptionWhileRecordingLeavesAUsableStream) {
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  Tensor x = random_bf16(*backend, 64, 64, 1);
  const auto fails = [&] {
    backend->set_to_zero(x.bytes());
    throw std::runtime_error("in the middle");
  };
  EXPECT_THROW(backend->record(fails), std::runtime_error);
  expect_usable(*backend);
}

TEST_F(CudaContexts, ARecordingThatWaitsIsAnErrorAndLeavesAUsableStream) {
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  Tensor x = random_bf16(*backend, 64, 64, 1);
  EXPECT_THROW(backend->record([&] {
    backend->set_to_zero(x.bytes());
    backend->synchronize();  // not possible while recording: it invalidates what was recorded
  }),
               Error);
  expect_usable(*backend);
}

struct KeyCase {
  const char* name;
  QuantSpec spec;
};

class RandomKeyInMemory : public CudaContexts, public ::testing::WithParamInterface<KeyCase> {};

TEST_P(RandomKeyInMemory, IsReadWhenTheQuantizerRuns) {
  const QuantSpec& spec = GetParam().spec;
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  const Tensor x = random_bf16(*backend, 256, 512, 1);
  Buffer key = backend->allocate(sizeof(RandomKey));
  const QuantizeOptions by_key = {.random = {.seed = 99, .step = 98, .microbatch = 97, .tensor = 5},
                                  .key = key.as<RandomKey>(),
                                  .order = backend->preferred_order(spec),
                                  .telemetry = Telemetry::none};
  QuantizedTensor drawn;
  const auto set_key = [&](const RandomKey& value) {
    backend->upload(std::as_bytes(std::span(&value, 1)), key.span<std::byte>());
  };
  const auto bytes_of = [&](const QuantizedTensor& tensor) {
    Bytes bytes;
    append(*backend, tensor, bytes);
    return bytes;
  };
  const RandomKey keys[] = {{.seed = 0x123456789ABCDEFull, .step = 7, .microbatch = 3},
                            {.seed = 0x123456789ABCDEFull, .step = 8, .microbatch = 3},
                            {.seed = 0x123456789ABCDEFull, .step = 8, .microbatch = 4},
                            {.seed = 0xFEDCBA987654321ull, .step = 8, .microbatch = 4}};
  set_key(keys[0]);
  const auto quantize = [&] { backend->quantize(x.view(), spec, by_key, drawn); };
  quantize();  // allocates what the recording then uses
  const std::function<void()> replay = backend->record(quantize);
  std::vector<Bytes> results;
  for (const RandomKey& value : keys) {
    set_key(value);
    replay();
    results.push_back(bytes_of(drawn));
    QuantizeOptions by_value = by_key;
    by_value.random = by_key.random.with(value);
    by_value.key = nullptr;
    QuantizedTensor expected;
    backend->quantize(x.view(), spec, by_value, expected);
    EXPECT_TRUE(results.back() == bytes_of(expected)) << results.size();
  }
  for (std::size_t i = 1; i < results.size(); ++i) EXPECT_FALSE(results[i] == results[i - 1]) << i;
}

INSTANTIATE_TEST_SUITE_P(
    EveryQuantizer, RandomKeyInMemory,
    ::testing::Values(
        KeyCase{"nvfp4_rows", {.rounding = Rounding::stochastic}},
        KeyCase{"nvfp4_columns", {.axis = 0, .rounding = Rounding::stochastic, .hadamard = 16}},
        KeyCase{"nvfp4_4_6", {.rounding = Rounding::stochastic_hardware, .scaling = Scaling::four_six}},
        KeyCase{"mxfp4_rows", {.format = Format::mxfp4, .block = {1, 32}, .rounding = Rounding::stochastic}},
        KeyCase{"mxfp4_columns",
                {.format = Format::mxfp4, .block = {1, 32}, .axis = 0, .rounding = Rounding::stochastic}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(CudaContexts, BothFormsOfAMatrixDrawFromTheKey) {
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  const Tensor x = random_bf16(*backend, 256, 512, 1);
  const RandomKey value{.seed = 12, .step = 34, .microbatch = 56};
  Buffer key = backend->allocate(sizeof(RandomKey));
  backend->upload(std::as_bytes(std::span(&value, 1)), key.span<std::byte>());
  const QuantSpec row{.rounding = Rounding::stochastic};
  const QuantSpec column{.axis = 0, .rounding = Rounding::stochastic, .hadamard = 16};
  const auto quantize = [&](bool by_key) {
    const auto options = [&](const QuantSpec& spec, std::uint32_t tensor) {
      const RandomStream stream{.tensor = tensor};
      return QuantizeOptions{.random = by_key ? stream : stream.with(value),
                             .key = by_key ? key.as<RandomKey>() : nullptr,
                             .order = backend->preferred_order(spec),
                             .telemetry = Telemetry::none};
    };
    const QuantizeOptions row_options = options(row, 1);
    const QuantizeOptions column_options = options(column, 2);
    QuantizedTensor rows;
    QuantizedTensor columns;
    backend->quantize(x.view(), {row, row_options, rows}, {column, column_options, columns});
    Bytes bytes;
    append(*backend, rows, bytes);
    append(*backend, columns, bytes);
    return bytes;
  };
  EXPECT_TRUE(quantize(true) == quantize(false));
}

}  // namespace
}  // namespace tetrad::testing::cuda_contexts_test
