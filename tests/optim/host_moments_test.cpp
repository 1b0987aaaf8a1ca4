// SPDX-License-Identifier: Apache-2.0
// Moments on the host: the same bits as on the device, however many are there and however they are reached.

#include <memory>

#include "support/backends.h"
#include "support/contexts.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad::testing::host_moments_test {
namespace {

class HostMomentsOn : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    backend_ =
        GetParam() == "cpu" ? make_cpu_backend({.threads = 2, .instruction_set = {}}) : make_cuda_backend();
    // On a device, more than the pieces that are staged at one time, and a rest that is no multiple of four.
    const std::int64_t large = GetParam() == "cpu" ? 300'001 : 70'000'003;
    for (const std::int64_t size : {large, std::int64_t{77}, std::int64_t{100'000}}) add_parameter(size);
  }

  void add_parameter(std::int64_t size) {
    auto parameter = std::make_unique<Parameter>();
    parameter->name = "weight " + std::to_string(size);
    parameter->shape = {size};
    parameter->is_linear = true;
    parameter->band = {0, 1};
    parameter->value = backend_->make_tensor(DType::f32, 1, size);
    parameter->gradient = backend_->make_tensor(DType::f32, 1, size);
    parameters_.push_back(std::move(parameter));
  }

  /// Values that differ from place to place and from `step` to step.
  void fill(Tensor& tensor, std::uint32_t step) {
    std::vector<float> values(static_cast<std::size_t>(tensor.size()));
    std::uint32_t state = step * 747796405U + 1;
    for (float& value : values) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(static_cast<std::int32_t>(state)) * 1e-12f;
    }
    backend_->upload(std::as_bytes(std::span(values)), tensor.bytes());
  }

  /// Weights and moments after three steps.
  Bytes train(const std::string& moments, std::int64_t host_moments) {
    AdamWOptimizer optimizer(*backend_, parameters_, {.moments = moments}, host_moments);
    for (const auto& parameter : parameters_) fill(parameter->value, 1);
    for (int step = 1; step <= 3; ++step) {
      for (const auto& parameter : parameters_)
        fill(parameter->gradient, static_cast<std::uint32_t>(step) + 1);
      optimizer.step(step, 1e-3, optimizer.inspect().norm);
    }
    Bytes results;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      append(*backend_, parameters_[i]->value.bytes(), results);
      append(*backend_, optimizer.moments(i).first.bytes(), results);
      append(*backend_, optimizer.moments(i).second.bytes(), results);
    }
    return results;
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

TEST_P(HostMomentsOn, GiveTheSameBits) {
  constexpr std::int64_t kSome = 1;
  constexpr std::int64_t kAll = std::int64_t{1} << 40;
  for (const char* moments : {"f32", "bf16"}) {
    const Bytes resident = train(moments, 0);
    for (const HostMoments access : {HostMoments::staged, HostMoments::mapped}) {
      if (!backend_->use_host_moments(access) && access == HostMoments::mapped)
        break;  // there is but one memory
      EXPECT_TRUE(train(moments, kSome) == resident) << moments;
      EXPECT_TRUE(train(moments, kAll) == resident) << moments;
    }
  }
}

TEST_P(HostMomentsOn, AFullMachineIsAnErrorAndNotACrash) {
  set_failpoints("host.allocate=enomem@2");
  EXPECT_THROW(AdamWOptimizer(*backend_, parameters_, {}, 1), Error);
  set_failpoints("");
  EXPECT_NO_THROW(AdamWOptimizer(*backend_, parameters_, {}, 1));
}

INSTANTIATE_TEST_SUITE_P(All, HostMomentsOn, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::host_moments_test
