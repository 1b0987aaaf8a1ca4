// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "benchmarks.h"

namespace tetrad::bench {
namespace {

constexpr double kGb = 1e9;

/// Elements of each tensor: their weights and gradients are the same memory, since only the moments are many.
constexpr std::int64_t kElements = std::int64_t{1} << 27;

/// AdamW over tensors whose moments lie on the host.
class HostAdamW {
 public:
  HostAdamW(Backend& backend, std::int64_t bytes)
      : backend_(backend),
        weight_(backend.make_tensor(DType::f32, 1, kElements)),
        gradient_(backend.make_tensor(DType::f32, 1, kElements)),
        begin_(std::chrono::steady_clock::now()),
        moments_(backend.allocate_on_host(static_cast<std::size_t>(bytes))),
        pinning_(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count()) {
    backend.set_to_zero(weight_.bytes());
    backend.set_to_zero(gradient_.bytes());
    float* moments = moments_.as<float>();
    for (std::int64_t left = bytes / moment_bytes(1, DType::f32); left > 0; left -= kElements) {
      const std::int64_t size = std::min(left, kElements);
      tensors_.push_back({.weight = weight_.f32(),
                          .gradient = gradient_.f32(),
                          .first_moment = moments,
                          .second_moment = moments + size,
                          .size = size,
                          .moments_on_host = true});
      moments += 2 * size;
    }
  }

  double pinning_seconds() const { return pinning_; }
  void step() { backend_.adamw({.tensors = tensors_, .step = 1, .learning_rate = 1e-4f}); }

  /// One copy of the length of a tensor, between the machine's memory and the device's.
  void copy_in() { backend_.copy(host_piece(), device_piece()); }
  void copy_out() { backend_.copy(device_piece(), host_piece()); }
  double copied_gb() const { return static_cast<double>(host_piece().size()) / kGb; }

 private:
  std::span<std::byte> host_piece() const {
    return {static_cast<std::byte*>(tensors_[0].first_moment), std::size_t(tensors_[0].size) * sizeof(float)};
  }
  std::span<std::byte> device_piece() { return weight_.bytes().first(host_piece().size()); }

  Backend& backend_;
  Tensor weight_, gradient_;
  std::chrono::steady_clock::time_point begin_;
  Buffer moments_;
  double pinning_;
  std::vector<AdamWTensor> tensors_;
};

}  // namespace

void moments(Backend& backend, double gigabytes, int repeats, const Report& report) {
  const std::int64_t bytes =
      moment_bytes(static_cast<std::int64_t>(gigabytes * kGb) / moment_bytes(1, DType::f32), DType::f32);
  HostAdamW adamw(backend, bytes);
  const auto gb = static_cast<double>(bytes) / kGb;
  const Stopwatch stopwatch(backend, repeats);
  const Pair copies = stopwatch.measure([&] { adamw.copy_out(); }, [&] { adamw.copy_in(); });
  const double in = adamw.copied_gb() / copies.ceiling;
  const double out = adamw.copied_gb() / copies.work;
  report({"memory of the host, made and pinned", "GB/s", gb / adamw.pinning_seconds(), in,
          "copy to the device"});
  report({"copy from the device", "GB/s", out, in, "copy to the device"});
  const auto measure = [&](const std::string& name) {
    adamw.step();
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(backend, [&] { adamw.step(); }));
    report({name, "GB/s each way", gb / median(seconds), std::min(in, out), "the slower copy"});
  };
  if (!backend.use_host_moments(HostMoments::mapped)) return measure("AdamW");
  measure("AdamW, moments read and written in place");
  backend.use_host_moments(HostMoments::staged);
  measure("AdamW, moments copied piece by piece");
}

}  // namespace tetrad::bench
