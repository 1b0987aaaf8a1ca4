// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "tetrad/backend/cpu/activation.h"
#include "tetrad/backend/cpu/adamw.h"
#include "tetrad/backend/cpu/attention.h"
#include "tetrad/backend/cpu/kernel_bf16.h"
#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cpu/elementwise.h"
#include "tetrad/backend/cpu/embedding.h"
#include "tetrad/backend/cpu/gemm.h"
#include "tetrad/backend/cpu/loss.h"
#include "tetrad/backend/cpu/mamba2.h"
#include "tetrad/backend/cpu/norm.h"
#include "tetrad/backend/cpu/quantize.h"
#include "tetrad/backend/cpu/rope.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/threads.h"
#include "tetrad/ops/backend.h"

namespace tetrad {
namespace {

std::string processor_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

/// Of this build, not of the machine: SIMD comes from the compiler.
constexpr std::string_view instruction_set() {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  return "AVX-512";
#elif defined(__AVX2__)
  return "AVX2";
#elif defined(__ARM_FEATURE_SVE)
  return "SVE";
#elif defined(__ARM_NEON)
  return "NEON";
#else
  return "the architecture's baseline";
#endif
}

/// Calls body(first, count) for pieces of `bytes`, in parallel.
template <typename Body>
void parallel_pieces(std::size_t bytes, const Body& body) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  parallel_for(static_cast<std::int64_t>((bytes + kPiece - 1) / kPiece), [&](std::int64_t piece) {
    const std::size_t first = static_cast<std::size_t>(piece) * kPiece;
    body(first, std::min(kPiece, bytes - first));
  });
}

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }

  std::vector<Property> properties() const override {
    return {{"processor", processor_name()},
            {"threads", std::to_string(thread_count())},
            {"compiled for", std::string(instruction_set())}};
  }

  std::vector<Property> kernels() const override {
    return {{"quantize", "16-lane tiles, two passes (compiler SIMD)"},
            {"dequantize", "compiler SIMD"},
            {"gemm", cpu::has_bf16_kernel()
                         ? "BF16 dot products (AVX512-BF16), f32 sums; f32 operands: fused multiply-adds"
                         : "packed as f32, fused multiply-adds in a fixed order"},
            {"attention", "tiles with online softmax; backward recomputes scores"},
            {"scan", "chunked state-space duality, state passed between chunks"},
            {"cross_entropy", "head and softmax in chunks of tokens and vocabulary"},
            {"norms, rope, activations, adamw", "compiler SIMD"}};
  }

  Buffer allocate(std::size_t bytes) override { return Buffer(bytes); }

  void set_to_zero(std::span<std::byte> memory) override {
    parallel_pieces(memory.size(), [&](std::size_t first, std::size_t count) {
      std::memset(memory.data() + first, 0, count);
    });
  }
  void copy(std::span<const std::byte> from, std::span<std::byte> to) override {
    parallel_pieces(from.size(), [&](std::size_t first, std::size_t count) {
      std::memcpy(to.data() + first, from.data() + first, count);
    });
  }
  void upload(std::span<const std::byte> from, std::span<std::byte> to) override { copy(from, to); }
  std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& /*copy*/) override {
    return memory;
  }
  void synchronize() override {}
  std::int64_t peak_memory() const override {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  }

  using Backend::quantize;
  QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                      QuantizedTensor& out) override {
    return cpu::quantize(x, spec, options, out);
  }

  void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) override {
    cpu::dequantize(tensor, out);
  }

  void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
            Accumulate accumulate) override {
    cpu::gemm(a, b, out, accumulate);
  }

  void embedding(const EmbeddingForward& op) override { cpu::embedding(op); }
  void embedding(const EmbeddingBackward& op) override { cpu::embedding(op); }
  void rms_norm(const RmsNormForward& op) override { cpu::rms_norm(op); }
  void rms_norm(const RmsNormBackward& op) override { cpu::rms_norm(op); }
  void gated_norm(const GatedNormForward& op) override { cpu::gated_norm(op); }
  void gated_norm(const GatedNormBackward& op) override { cpu::gated_norm(op); }
  void rope(const Rope& op) override { cpu::rope(op); }
  void attention(const AttentionForward& op) override { cpu::attention(op); }
  void attention(const AttentionBackward& op) override { cpu::attention(op); }
  void attention(const AttentionDecode& op) override { cpu::attention(op); }
  void causal_conv(const CausalConvForward& op) override { cpu::causal_conv(op); }
  void causal_conv(const CausalConvBackward& op) override { cpu::causal_conv(op); }
  void scan(const ScanForward& op) override { cpu::scan(op); }
  void scan(const ScanBackward& op) override { cpu::scan(op); }
  void mamba2_step(const Mamba2Step& op) override { cpu::mamba2_step(op); }
  void activation(const ActivationForward& op) override { cpu::activation(op); }
  void activation(const ActivationBackward& op) override { cpu::activation(op); }
  void add(const Add& op) override { cpu::add(op); }
  void cast(const Cast& op) override { cpu::cast(op); }
  void cross_entropy(const CrossEntropy& op) override { cpu::cross_entropy(op); }
  void adamw(const AdamWStep& op) override { cpu::adamw(op); }
  std::vector<double> squared_norms(std::span<const AdamWTensor> tensors) override {
    return cpu::squared_norms(tensors);
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions&) { return std::make_unique<CpuBackend>(); }

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

}  // namespace tetrad
