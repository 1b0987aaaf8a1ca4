// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <nvtx3/nvToolsExt.h>

#include <fmt/format.h>

#include <memory>

#include "tetrad/backend/cuda/attention/attention.h"
#include "tetrad/backend/cuda/attention/cudnn_attention.h"
#include "tetrad/backend/cuda/common/copy_lanes.h"
#include "tetrad/backend/cuda/common/current_device.h"
#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/graph.h"
#include "tetrad/backend/cuda/common/host_memory.h"
#include "tetrad/backend/cuda/common/memory_reader.h"
#include "tetrad/backend/cuda/common/meter.h"
#include "tetrad/backend/cuda/common/timeline.h"
#include "tetrad/backend/cuda/gemm/blas.h"
#include "tetrad/backend/cuda/gemm/gemm.h"
#include "tetrad/backend/cuda/gemm/native.h"
#include "tetrad/backend/cuda/layers/layers.h"
#include "tetrad/backend/cuda/mamba2/mamba2.h"
#include "tetrad/backend/cuda/quantize/quantize.h"
#include "tetrad/core/error.h"
#include "tetrad/core/host_memory.h"
#include "tetrad/ops/backend.h"

namespace tetrad {
namespace {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options)
      : threads_(options.threads),
        device_({options.device, static_cast<cudaStream_t>(options.stream), options.tune, options.native}) {}

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

  std::string fp8_products() const {
    const int capability = device_.native_capability();
    if (!cuda::is_native(Format::fp8, capability)) return "f32 arithmetic";
    return cuda::has_fp8_in_blas(capability) ? "cuBLASLt on FP8 units" : "own kernel on FP8 units";
  }

  std::vector<Property> kernels() const override {
    return {{"quantize", "own kernels, byte-equal to the CPU"},
            {"gemm", cuda::is_native(Format::nvfp4, device_.native_capability())
                         ? "cuBLASLt; NVFP4 natively, MXFP4 as exact BF16 operands"
                         : "cuBLASLt; NVFP4 and MXFP4 as exact BF16 operands"},
            {"gemm of FP8", fp8_products()},
            {"attention", "flash attention on BF16 tensor cores; f32 in plain arithmetic"},
            {"attention by cuDNN", cuda::cudnn_attention_state(entered())},
            {"scan", "chunked state-space duality"},
            {"cross_entropy", "head and softmax in chunks of tokens"},
            {"norms, rope, activations, adamw", "own kernels"}};
  }

  std::vector<Property> bits_depend_on() const override {
    std::vector<Property> all = {{"backend", "cuda"},
                                 {"GPU", device_.properties().name},
                                 {"cuBLASLt", std::to_string(cublasLtGetVersion())},
                                 {"attention by cuDNN", cuda::cudnn_attention_state(entered())}};
    if (device_.native_capability() == 0) all.push_back({"operands in narrow formats", "always expanded"});
    return all;
  }

  std::string device_id() const override { return "GPU " + device_.bus_id(); }
  void* stream() const override { return device_.stream(); }

  Threads& threads() override { return threads_; }

  Buffer allocate(std::size_t bytes) override { return entered()->allocate(bytes); }
  Buffer allocate_on_host(std::size_t bytes) override {
    const Entered device = entered();
    return cuda::allocate_pinned(threads_, bytes);
  }

  void set_to_zero(std::span<std::byte> memory) override {
    if (!memory.empty()) cuda::check(cudaMemsetAsync(memory.data(), 0, memory.size(), entered()->stream()));
  }

  void copy(std::span<const std::byte> from, std::span<std::byte> to) override {
    TETRAD_CHECK(from.size() <= to.size(), "copy: {} bytes into {}", from.size(), to.size());
    if (from.empty()) return;
    cuda::check(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDefault, entered()->stream()));
  }

  void copy_in_lane(std::size_t lane, std::span<const std::byte> from, std::span<std::byte> to) override {
    TETRAD_CHECK(from.size() <= to.size(), "copy: {} bytes into {}", from.size(), to.size());
    const Entered device = entered();
    if (!from.empty()) device->kept<cuda::CopyLanes>().copy(device, lane, from, to);
  }
  void join_lane(std::size_t lane) override {
    const Entered device = entered();
    device->kept<cuda::CopyLanes>().join(device, lane);
  }

  void upload(std::span<const std::byte> from, std::span<std::byte> to) override {
    TETRAD_CHECK(from.size() <= to.size(), "upload: {} bytes into {}", from.size(), to.size());
    if (from.empty()) return;
    const Entered device = entered();
    cuda::check(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDefault, device->stream()));
    // Other memory has been read when the call returns; memory that is pinned is read when its turn comes.
    if (is_on_host(from.data()) || is_on_host(to.data())) device->synchronize();
  }

  std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& copy) override {
    if (memory.empty()) return memory;
    const Entered device = entered();
    if (is_on_host(memory.data())) {
      device->synchronize();
      return memory;
    }
    if (copy.size() < memory.size()) copy = Buffer(memory.size());
    cuda::check(
        cudaMemcpyAsync(copy.data(), memory.data(), memory.size(), cudaMemcpyDeviceToHost, device->stream()));
    device->synchronize();
    return {copy.data(), memory.size()};
  }

  std::unique_ptr<MemoryReader> make_reader() override { return cuda::make_reader(entered()); }
  void synchronize() override { entered()->synchronize(); }
  std::unique_ptr<Timeline> make_timeline() override { return cuda::make_timeline(entered()); }
  void begin_range(const std::string& name) override { nvtxRangePushA(name.c_str()); }
  void end_range() override { nvtxRangePop(); }
  std::function<void()> record(const std::function<void()>& work) override {
    const Entered device = entered();
    return [this, graph = cuda::record(device, work)] { graph.launch(entered()); };
  }
  std::int64_t peak_memory() const override { return device_.peak_memory(); }
  std::optional<std::int64_t> restart_peak() override { return entered()->restart_peak(); }
  std::optional<std::int64_t> free_memory() const override { return entered()->free_memory(); }
  std::optional<std::int64_t> free_host_memory() const override { return available_memory(); }
  void keep_choices_in(const std::filesystem::path& folder) override {
    cuda::keep_choices_in(entered(), folder);
  }
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
    return cuda::quantize(entered(), x, spec, options, out);
  }
  std::array<QuantStats, 2> quantize(const MatrixView& x, const QuantizeTask& first,
                                     const QuantizeTask& second) override {
    const auto measures = [](const QuantizeTask& task) { return task.options.telemetry != Telemetry::none; };
    if (measures(first) || measures(second)) return Backend::quantize(x, first, second);
    cuda::quantize_two(entered(), x, first.spec, first.options, first.out, second.spec, second.options,
                       second.out);
    return {};
  }
  void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) override {
    cuda::dequantize(entered(), tensor, out);
  }
  void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
            Accumulate accumulate) override {
    cuda::gemm(entered(), a, b, out, accumulate);
  }

  void embedding(const EmbeddingForward& op) override { cuda::embedding(entered(), op); }
  void embedding(const EmbeddingBackward& op) override { cuda::embedding(entered(), op); }
  void rms_norm(const RmsNormForward& op) override {
    check_width(op);
    cuda::rms_norm(entered(), op);
  }
  void rms_norm(const RmsNormBackward& op) override {
    check_width(op);
    cuda::rms_norm(entered(), op);
  }
  void gated_norm(const GatedNormForward& op) override { cuda::gated_norm(entered(), op); }
  void gated_norm(const GatedNormBackward& op) override { cuda::gated_norm(entered(), op); }
  void rope(const Rope& op) override { cuda::rope(entered(), op); }
  void attention(const AttentionForward& op) override { cuda::attention(entered(), op); }
  void attention(const AttentionBackward& op) override { cuda::attention(entered(), op); }
  void attention(const AttentionDecode& op) override { cuda::attention(entered(), op); }
  bool use_attention_engine(AttentionEngine engine, const AttentionShape& shape) override {
    return cuda::use_attention_engine(entered(), engine, shape);
  }
  void causal_conv(const CausalConvForward& op) override { cuda::causal_conv(entered(), op); }
  void causal_conv(const CausalConvBackward& op) override { cuda::causal_conv(entered(), op); }
  void scan(const ScanForward& op) override { cuda::scan(entered(), op); }
  void scan(const ScanBackward& op) override { cuda::scan(entered(), op); }
  void mamba2_step(const Mamba2Step& op) override { cuda::mamba2_step(entered(), op); }
  void activation(const ActivationForward& op) override { cuda::activation(entered(), op); }
  void activation(const ActivationBackward& op) override { cuda::activation(entered(), op); }
  void add(const Add& op) override { cuda::add(entered(), op); }
  void cast(const Cast& op) override { cuda::cast(entered(), op); }
  void column_sums(const ColumnSums& op) override { cuda::column_sums(entered(), op); }
  void centre(const Centre& op) override { cuda::centre(entered(), op); }
  void add_row(const AddRow& op) override { cuda::add_row(entered(), op); }
  void add_outer(const AddOuter& op) override { cuda::add_outer(entered(), op); }
  void cross_entropy(const CrossEntropy& op) override { cuda::cross_entropy(entered(), op); }
  void ordered_sum(const OrderedSum& op) override { cuda::ordered_sum(entered(), op); }
  void adamw(const AdamWStep& op) override { cuda::adamw(entered(), op); }
  bool use_host_moments(HostMoments access) override {
    device_.host_moments = access;
    return true;
  }
  std::vector<double> squared_norms(std::span<const AdamWTensor> tensors) override {
    return cuda::squared_norms(entered(), tensors);
  }
  void amaxes(const Amaxes& op) override { cuda::amaxes(entered(), op); }
  std::vector<DeviationSums> deviations(std::span<const DeviationTensor> tensors) override {
    return cuda::deviations(entered(), tensors);
  }

 private:
  /// Whether it is memory of allocate_on_host(), or other memory that is pinned.
  static bool is_on_host(const std::byte* memory) {
    cudaPointerAttributes attributes = {};
    cuda::check(cudaPointerGetAttributes(&attributes, memory));
    return attributes.type == cudaMemoryTypeHost;
  }

  template <typename RmsNorm>
  static void check_width(const RmsNorm& op) {
    check(op);
    const std::int64_t width = op.x.cols / op.heads;
    TETRAD_CHECK(width <= cuda::widest_row(op),
                 "rms_norm on a GPU takes rows of up to {} values, not {}; use run.backend: cpu",
                 cuda::widest_row(op), width);
  }

  /// The device, which is the calling thread's current one as long as this lives: every way in goes through
  /// here.
  class Entered {
   public:
    explicit Entered(cuda::Device& device) : current_(device.index()), device_(device) {}
    operator cuda::Device&() const { return device_; }
    cuda::Device* operator->() const { return &device_; }

   private:
    cuda::CurrentDevice current_;
    cuda::Device& device_;
  };
  Entered entered() const { return Entered(device_); }

  Threads threads_;
  mutable cuda::Device device_;  //!< constant to callers: what it keeps changes no result
  cuda::DeviceMeter meter_{device_.bus_id()};
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace tetrad
