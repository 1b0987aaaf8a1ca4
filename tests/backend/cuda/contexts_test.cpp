// SPDX-License-Identifier: Apache-2.0
// Several contexts on one GPU share nothing: used from two threads at once, each gives the bits that it gives
// alone. What went wrong in one operation does not stay with the context.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/files.h"
#include "tetrad/core/error.h"
#include "tetrad/model/decoder.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/ops/backend.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad::testing::contexts_test {
namespace {

using Bytes = std::vector<std::byte>;

Tensor random_bf16(Backend& backend, std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(static_cast<std::size_t>(rows * cols));
  for (Bf16& value : values) value = Bf16::from_f32(normal(generator));
  Tensor tensor = backend.make_tensor(DType::bf16, rows, cols);
  backend.upload(std::as_bytes(std::span(values)), tensor.bytes());
  return tensor;
}

void append(Backend& backend, std::span<const std::byte> memory, Bytes& results) {
  Buffer copy;
  const std::span<const std::byte> bytes = backend.readable(memory, copy);
  results.insert(results.end(), bytes.begin(), bytes.end());
}
void append(Backend& backend, const Buffer& buffer, Bytes& results) {
  append(backend, {buffer.data(), buffer.size()}, results);
}
void append(Backend& backend, const QuantizedTensor& tensor, Bytes& results) {
  append(backend, tensor.codes, results);
  append(backend, tensor.scales, results);
  append(backend, tensor.device_amax, results);
}

constexpr QuantizeOptions stochastic_options(unsigned seed) {
  return {.random = {.seed = seed, .step = 3, .microbatch = 1, .tensor = 5}, .telemetry = Telemetry::none};
}

Bytes quantize_and_multiply(Backend& backend, unsigned seed) {
  const Tensor x = random_bf16(backend, 256, 512, seed);
  const Tensor w = random_bf16(backend, 384, 512, seed + 1);
  QuantizedTensor a;
  QuantizedTensor b;
  backend.quantize(x.view(), {.rounding = Rounding::stochastic}, stochastic_options(seed), a);
  backend.quantize(w.view(), {.block = {16, 16}}, stochastic_options(seed), b);
  Tensor out = backend.make_tensor(DType::f32, 256, 384);
  backend.gemm(a, b, out.view());
  Bytes results;
  append(backend, a, results);
  append(backend, b, results);
  append(backend, out.bytes(), results);
  return results;
}

/// Large enough for cuBLASLt's kernels to be timed.
Bytes multiply_large(Backend& backend, unsigned seed) {
  constexpr std::int64_t kSize = 1024;
  const Tensor a = random_bf16(backend, kSize, kSize, seed);
  const Tensor b = random_bf16(backend, kSize, kSize, seed + 1);
  Tensor out = backend.make_tensor(DType::f32, kSize, kSize);
  backend.gemm(a.view(), b.view(), out.view());
  Bytes results;
  append(backend, out.bytes(), results);
  return results;
}

Bytes attend(Backend& backend, unsigned seed, std::int64_t head_dim) {
  const AttentionShape shape{2, 256, 4, 2, head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim))};
  const std::int64_t tokens = shape.batch * shape.sequence;
  const auto input = [&](std::int64_t heads, unsigned which) {
    return random_bf16(backend, tokens, heads * head_dim, seed + which);
  };
  const auto output = [&](std::int64_t heads) {
    return backend.make_tensor(DType::bf16, tokens, heads * head_dim);
  };
  const Tensor q = input(shape.heads, 0);
  const Tensor k = input(shape.kv_heads, 1);
  const Tensor v = input(shape.kv_heads, 2);
  const Tensor dout = input(shape.heads, 3);
  Tensor out = output(shape.heads);
  Tensor dq = output(shape.heads);
  Tensor dk = output(shape.kv_heads);
  Tensor dv = output(shape.kv_heads);
  Tensor log_sum_exp = backend.make_tensor(DType::f32, shape.batch * shape.heads, shape.sequence);
  backend.attention(AttentionForward{shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.f32()});
  backend.attention(AttentionBackward{shape, q.view(), k.view(), v.view(), out.const_view(),
                                      log_sum_exp.f32(), dout.view(), dq.view(), dk.view(), dv.view()});
  Bytes results;
  for (const Tensor* tensor : {&out, &dq, &dk, &dv}) append(backend, tensor->bytes(), results);
  return results;
}

/// Two steps of a tiny model with every kind of block.
Bytes train(Backend& backend, unsigned seed) {
  constexpr std::int64_t kBatch = 2;
  constexpr std::int64_t kSequence = 128;
  constexpr std::int32_t kVocab = 512;
  ModelConfig config;
  config.pattern = "M-*-";
  config.hidden = 256;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.ffn = 512;
  config.vocab = kVocab;
  config.mamba = {.heads = 16, .head_dim = 64, .groups = 2, .state = 64, .conv = 4, .chunk = 64};
  PrecisionConfig precision;
  precision.recipe = "nvfp4";
  const Recipe recipe(precision, config.blocks());
  Decoder decoder(backend, config, kBatch, kSequence, DType::bf16);
  const OptimConfig optim;
  AdamWOptimizer optimizer(backend, decoder.parameters(), optim);
  decoder.initialize(seed);
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> pick(0, kVocab - 1);
  const auto tokens = [&] {
    std::vector<std::int32_t> result(kBatch * kSequence);
    for (std::int32_t& token : result) token = pick(generator);
    return result;
  };
  std::vector<float> losses(kBatch * kSequence);
  for (std::uint32_t step = 0; step < 2; ++step) {
    Pass pass;
    pass.recipe = &recipe;
    pass.seed = seed;
    pass.step = step;
    decoder.clear_gradients();
    decoder.train(pass, tokens(), tokens(), 1.0f / (kBatch * kSequence), losses);
    optimizer.step(step + 1, 1e-3, optimizer.inspect().norm);
  }
  const std::span<const std::byte> lost = std::as_bytes(std::span(losses));
  Bytes results(lost.begin(), lost.end());
  for (const auto& parameter : decoder.parameters()) append(backend, parameter->value.bytes(), results);
  return results;
}

/// A cache of this test alone, so that it begins empty.
class Contexts : public ::testing::Test {
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

using Work = std::function<Bytes(Backend&, unsigned seed)>;

/// Runs `work` in two contexts one after the other, and in two at once.
void expect_same_bits_at_once(const Work& work) {
  constexpr int kRepeats = 3;
  Bytes alone[2];
  for (unsigned i = 0; i < 2; ++i) alone[i] = work(*make_cuda_backend(), i + 1);
  ASSERT_FALSE(alone[0] == alone[1]) << "results do not depend on the seed: the test could not fail";
  bool equal[2] = {true, true};
  std::string errors[2];
  const auto run = [&](unsigned i) {
    try {
      const std::unique_ptr<Backend> backend = make_cuda_backend();
      for (int repeat = 0; repeat < kRepeats; ++repeat)
        equal[i] = work(*backend, i + 1) == alone[i] && equal[i];
    } catch (const std::exception& error) {
      errors[i] = error.what();
    }
  };
  std::thread first(run, 0u);
  std::thread second(run, 1u);
  first.join();
  second.join();
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(errors[i], "");
    EXPECT_TRUE(equal[i]) << "thread " << i;
  }
}

TEST_F(Contexts, QuantizeAndMultiplySideBySide) { expect_same_bits_at_once(quantize_and_multiply); }

TEST_F(Contexts, MultiplyLargeMatricesSideBySide) { expect_same_bits_at_once(multiply_large); }

TEST_F(Contexts, AttendSideBySide) {
  for (const std::int64_t head_dim : {64, 128, 80})  // the last is for the kernels of any shape
    expect_same_bits_at_once(
        [&](Backend& backend, unsigned seed) { return attend(backend, seed, head_dim); });
}

TEST_F(Contexts, AttentionOfDifferentShapesSideBySide) {
  // One kernel with more and with less shared memory, which is an attribute that contexts share.
  expect_same_bits_at_once(
      [](Backend& backend, unsigned seed) { return attend(backend, seed, seed == 1 ? 80 : 256); });
}

TEST_F(Contexts, TrainSideBySide) { expect_same_bits_at_once(train); }

TEST_F(Contexts, AgreeOnTheKernelsOfAProductThatBothTimeFirst) {
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

TEST_F(Contexts, TimeNothingWhenToldNotTo) {
  const std::unique_ptr<Backend> backend = make_cuda_backend({.tune = false});
  EXPECT_FALSE(multiply_large(*backend, 1).empty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
}

TEST_F(Contexts, WorkOnAStreamFromOutside) {
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

TEST_F(Contexts, BuffersOutliveTheContext) {
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

TEST_F(Contexts, ACopyIntoTooLittleMemoryIsRefused) {
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

TEST_F(Contexts, AnExceptionWhileRecordingLeavesAUsableStream) {
  const std::unique_ptr<Backend> backend = make_cuda_backend();
  Tensor x = random_bf16(*backend, 64, 64, 1);
  const auto fails = [&] {
    backend->set_to_zero(x.bytes());
    throw std::runtime_error("in the middle");
  };
  EXPECT_THROW(backend->record(fails), std::runtime_error);
  expect_usable(*backend);
}

TEST_F(Contexts, ARecordingThatWaitsIsAnErrorAndLeavesAUsableStream) {
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

class RandomKeyInMemory : public Contexts, public ::testing::WithParamInterface<KeyCase> {};

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
        KeyCase{"nvfp4_adaptive", {.rounding = Rounding::stochastic_hardware, .adaptive = true}},
        KeyCase{"mxfp4_rows", {.format = Format::mxfp4, .block = {1, 32}, .rounding = Rounding::stochastic}},
        KeyCase{"mxfp4_columns",
                {.format = Format::mxfp4, .block = {1, 32}, .axis = 0, .rounding = Rounding::stochastic}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(Contexts, BothFormsOfAMatrixDrawFromTheKey) {
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
}  // namespace tetrad::testing::contexts_test
