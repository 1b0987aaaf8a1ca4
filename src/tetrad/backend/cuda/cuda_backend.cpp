// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "tetrad/backend/cuda/attention/attention.h"
#include "tetrad/backend/cuda/attention/cudnn_attention.h"
#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/meter.h"
#include "tetrad/backend/cuda/gemm/gemm.h"
#include "tetrad/backend/cuda/layers/activation.h"
#include "tetrad/backend/cuda/layers/adamw.h"
#include "tetrad/backend/cuda/layers/elementwise.h"
#include "tetrad/backend/cuda/layers/embedding.h"
#include "tetrad/backend/cuda/layers/loss.h"
#include "tetrad/backend/cuda/layers/norm.h"
#include "tetrad/backend/cuda/layers/rope.h"
#include "tetrad/backend/cuda/mamba2/mamba2.h"
#include "tetrad/backend/cuda/quantize/quantize.h"
#include "tetrad/core/error.h"
#include "tetrad/ops/backend.h"

namespace tetrad {
namespace {

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }

  std::vector<Property> properties() const override {
    const cudaDeviceProp& device = device_.properties();
    int driver = 0;
    int runtime = 0;
    cuda::check(cudaDriverGetVersion(&driver));
    cuda::check(cudaRuntimeGetVersion(&runtime));
    const auto version = [](int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); };
    return {{"device", device.name},
            {"compute capability", fmt::format("{}.{}", device.major, device.minor)},
            {"multiprocessors", std::to_string(device.multiProcessorCount)},
            {"memory", fmt::format("{:.1f} GB", static_cast<double>(device.totalGlobalMem) / 1e9)},
            {"CUDA", fmt::format("{} (driver {})", version(runtime), version(driver))},
            {"cuBLASLt", std::to_string(cublasLtGetVersion())}};
  }

  std::vector<Property> kernels() const override {
    return {
        {"quantize", "own kernels, byte-equal to the CPU"},
        {"gemm", cuda::is_native(Format::nvfp4, device.properties().major) ? "cuBLASLt; NVFP4 natively, MXFP4 as exact BF16 operands"
                                                  : "cuBLASLt; NVFP4 and MXFP4 as exact BF16 operands"},
        {"attention", "flash attention on BF16 tensor cores; f32 in plain arithmetic"},
        {"attention by cuDNN", cuda::cudnn_attention_state(device_)},
        {"scan", "chunked state-space duality"},
        {"cross_entropy", "head and softmax in chunks of tokens"},
        {"norms, rope, activations, adamw", "own kernels"}};
  }

  Buffer allocate(std::size_t bytes) override { return device_.allocate(bytes); }

  void set_to_zero(std::span<std::byte> memory) override {
    if (!memory.empty()) cuda::check(cudaMemsetAsync(memory.data(), 0, memory.size(), device_.stream()));
  }

  void copy(std::span<const std::byte> from, std::span<std::byte> to) override {
    cuda::check(
        cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToDevice, device_.stream()));
  }

  void upload(std::span<const std::byte> from, std::span<std::byte> to) override {
    TETRAD_CHECK(from.size() <= to.size(), "upload: {} bytes into {}", from.size(), to.size());
    if (from.empty()) return;
    cuda::check(
        cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyHostToDevice, device_.stream()));
  }

  std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& copy) override {
    if (memory.empty()) return memory;
    if (copy.size() < memory.size()) copy = Buffer(memory.size());
    cuda::check(
        cudaMemcpyAsync(copy.data(), memory.data(), memory.size(), cudaMemcpyDeviceToHost, device_.stream()));
    device_.synchronize();
    return {copy.data(), memory.size()};
  }

  void synchronize() override { device_.synchronize(); }
  std::function<void()> record(const std::function<void()>& work) override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replayable = nullptr;
    cuda::check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeThreadLocal));
    work();
    cuda::check(cudaStreamEndCapture(device_.stream(), &graph));
    cuda::check(cudaGraphInstantiate(&replayable, graph, 0));
    cuda::check(cudaGraphDestroy(graph));
    const std::shared_ptr<CUgraphExec_st> owner(replayable, cudaGraphExecDestroy);
    return [this, owner] { cuda::check(cudaGraphLaunch(owner.get(), device_.stream())); };
  }
  std::int64_t peak_memory() const override { return device_.peak_memory(); }
  std::optional<std::int64_t> restart_peak() override { return device_.restart_peak(); }
  std::optional<std::int64_t> free_memory() const override { return device_.free_memory(); }
  std::optional<double> energy() const override { return meter_.joules(); }
  std::optional<double> busy() const override { return meter_.busy(); }

  /// The matrix units take FP8 with the reduction dimension last. The four-bit formats reach them as BF16,
  /// which they take either way, or, where NVFP4 is native, are transposed for the product: half a byte per
  /// value.
  CodeOrder preferred_order(const QuantSpec& spec) const override {
    return spec.format == Format::fp8 ? CodeOrder::row_major : Backend::preferred_order(spec);
  }
  QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                      QuantizedTensor& out) override {
    return cuda::quantize(device_, x, spec, options, out);
  }
  std::array<QuantStats, 2> quantize(const MatrixView& x, const QuantizeTask& first,
                                     const QuantizeTask& second) override {
    const auto measures = [](const QuantizeTask& task) { return task.options.telemetry != Telemetry::none; };
    if (measures(first) || measures(second)) return Backend::quantize(x, first, second);
    cuda::quantize_two(device_, x, first.spec, first.options, first.out, second.spec, second.options,
                       second.out);
    return {};
  }
  void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) override {
    cuda::dequantize(device_, tensor, out);
  }
  void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
            Accumulate accumulate) override {
    cuda::gemm(device_, a, b, out, accumulate);
  }

  void embedding(const EmbeddingForward& op) override { cuda::embedding(device_, op); }
  void embedding(const EmbeddingBackward& op) override { cuda::embedding(device_, op); }
  void rms_norm(const RmsNormForward& op) override {
    check_width(op);
    cuda::rms_norm(device_, op);
  }
  void rms_norm(const RmsNormBackward& op) override {
    check_width(op);
    cuda::rms_norm(device_, op);
  }
  void gated_norm(const GatedNormForward& op) override { cuda::gated_norm(device_, op); }
  void gated_norm(const GatedNormBackward& op) override { cuda::gated_norm(device_, op); }
  void rope(const Rope& op) override { cuda::rope(device_, op); }
  void attention(const AttentionForward& op) override { cuda::attention(device_, op); }
  void attention(const AttentionBackward& op) override { cuda::attention(device_, op); }
  void attention(const AttentionDecode& op) override { cuda::attention(device_, op); }
  bool use_attention_engine(AttentionEngine engine, const AttentionShape& shape) override {
    return cuda::use_attention_engine(device_, engine, shape);
  }
  void causal_conv(const CausalConvForward& op) override { cuda::causal_conv(device_, op); }
  void causal_conv(const CausalConvBackward& op) override { cuda::causal_conv(device_, op); }
  void scan(const ScanForward& op) override { cuda::scan(device_, op); }
  void scan(const ScanBackward& op) override { cuda::scan(device_, op); }
  void mamba2_step(const Mamba2Step& op) override { cuda::mamba2_step(device_, op); }
  void activation(const ActivationForward& op) override { cuda::activation(device_, op); }
  void activation(const ActivationBackward& op) override { cuda::activation(device_, op); }
  void add(const Add& op) override { cuda::add(device_, op); }
  void cast(const Cast& op) override { cuda::cast(device_, op); }
  void cross_entropy(const CrossEntropy& op) override { cuda::cross_entropy(device_, op); }
  void adamw(const AdamWStep& op) override { cuda::adamw(device_, op); }
  std::vector<double> squared_norms(std::span<const AdamWTensor> tensors) override {
    return cuda::squared_norms(device_, tensors);
  }

 private:
  template <typename RmsNorm>
  static void check_width(const RmsNorm& op) {
    TETRAD_CHECK(op.x.cols <= cuda::widest_row(op),
                 "rms_norm on a GPU takes rows of up to {} values, not {}; use run.backend: cpu",
                 cuda::widest_row(op), op.x.cols);
  }

  cuda::Device device_;
  cuda::DeviceMeter meter_{device_.bus_id()};
};

}  // namespace

Backend& cuda_backend() {
  static CudaBackend backend;
  return backend;
}

}  // namespace tetrad
