// SPDX-License-Identifier: Apache-2.0
#include <gnu/libc-version.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "tetrad/backend/cpu/activation.h"
#include "tetrad/backend/cpu/adamw.h"
#include "tetrad/backend/cpu/amaxes.h"
#include "tetrad/backend/cpu/attention.h"
#include "tetrad/backend/cpu/centring.h"
#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cpu/deviation.h"
#include "tetrad/backend/cpu/elementwise.h"
#include "tetrad/backend/cpu/embedding.h"
#include "tetrad/backend/cpu/factory.h"
#include "tetrad/backend/cpu/gemm.h"
#include "tetrad/backend/cpu/instruction_sets.h"
#include "tetrad/backend/cpu/loss.h"
#include "tetrad/backend/cpu/mamba2.h"
#include "tetrad/backend/cpu/norm.h"
#include "tetrad/backend/cpu/ordered_sum.h"
#include "tetrad/backend/cpu/quantize.h"
#include "tetrad/backend/cpu/quantize_stack.h"
#include "tetrad/backend/cpu/rope.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/core/host_memory.h"
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

/// Calls body(first, count) for pieces of `bytes`, in parallel.
template <typename Body>
void parallel_pieces(Threads& threads, std::size_t bytes, const Body& body) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  threads.parallel_for(static_cast<std::int64_t>((bytes + kPiece - 1) / kPiece), [&](std::int64_t piece) {
    const std::size_t first = static_cast<std::size_t>(piece) * kPiece;
    body(first, std::min(kPiece, bytes - first));
  });
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const cpu::VariantOptions& options)
      : instruction_set_(options.instruction_set),
        kernel_(options.kernel),
        threads_(options.options.threads) {}

  std::string_view name() const override { return "cpu"; }

  std::vector<Property> properties() const override {
    return {{"processor", processor_name()},
            {"threads", std::to_string(threads_.count())},
            {"instruction set", instructions()}};
  }

  std::vector<Property> kernels() const override {
    return {{"quantize", "16-lane tiles, two passes (compiler SIMD)"},
            {"dequantize", "compiler SIMD"},
            {"gemm", kernel_ == cpu::ProductKernel::bf16
                         ? "packed as BF16, BF16 products, f32 sums; f32 operands: fused multiply-adds"
                         : "packed as f32, fused multiply-adds"},
            {"attention", "tiles with online softmax; backward recomputes scores"},
            {"scan", "chunked state-space duality, state passed between chunks"},
            {"cross_entropy", "head and softmax in chunks of tokens and vocabulary"},
            {"norms, rope, activations, adamw", "compiler SIMD"}};
  }

  std::vector<Property> bits_depend_on() const override {
#if defined(__x86_64__)
    const bool flushes = kernel_ == cpu::ProductKernel::bf16;
#else
    const bool flushes = false;
#endif
    return {{"backend", "cpu"},
            {"subnormals in BF16 products", flushes ? "zero" : "kept"},
            {"C library", gnu_get_libc_version()}};
  }

  Threads& threads() override { return threads_; }

  Buffer allocate(std::size_t bytes) override { return Buffer(bytes); }
  Buffer allocate_on_host(std::size_t bytes) override {
    if (failpoint_fails("host.allocate")) fail_errno(fmt::format("no room for {} bytes", bytes));
    return Backend::allocate_on_host(bytes);
  }

  void set_to_zero(std::span<std::byte> memory) override {
    parallel_pieces(threads_, memory.size(), [&](std::size_t first, std::size_t count) {
      std::memset(memory.data() + first, 0, count);
    });
  }
  void copy(std::span<const std::byte> from, std::span<std::byte> to) override {
    copy_checked("copy", from, to);
  }
  void upload(std::span<const std::byte> from, std::span<std::byte> to) override {
    copy_checked("upload", from, to);
  }
  std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& /*copy*/) override {
    return memory;
  }
  std::unique_ptr<MemoryReader> make_reader() override { return std::make_unique<PlainMemoryReader>(); }
  void synchronize() override {}
  std::optional<std::int64_t> free_memory() const override { return available_memory(); }
  std::int64_t peak_memory() const override {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  }

  bool has_stacks() const override { return true; }

  using Backend::quantize;
  QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                      QuantizedTensor& out) override {
    return options.stack.empty() ? cpu::quantize(threads_, x, spec, options, out)
                                 : cpu::quantize_stack(threads_, x, spec, options, out);
  }

  void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) override {
    cpu::dequantize(threads_, tensor, out);
  }

  void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
            Accumulate accumulate) override {
    cpu::gemm(threads_, kernel_, a, b, out, accumulate);
  }
  bool pack(const GemmOperand& b, PackedOperand& out) override {
    cpu::pack(threads_, kernel_, b, out);
    return true;
  }

  void embedding(const EmbeddingForward& op) override { cpu::embedding(threads_, op); }
  void embedding(const EmbeddingBackward& op) override { cpu::embedding(threads_, op); }
  void rms_norm(const RmsNormForward& op) override { cpu::rms_norm(threads_, op); }
  void rms_norm(const RmsNormBackward& op) override { cpu::rms_norm(threads_, op); }
  void gated_norm(const GatedNormForward& op) override { cpu::gated_norm(threads_, op); }
  void gated_norm(const GatedNormBackward& op) override { cpu::gated_norm(threads_, op); }
  void rope(const Rope& op) override { cpu::rope(threads_, op); }
  void attention(const AttentionForward& op) override { cpu::attention(threads_, op); }
  void attention(const AttentionBackward& op) override { cpu::attention(threads_, op); }
  void attention(const AttentionDecode& op) override { cpu::attention(threads_, op); }
  void causal_conv(const CausalConvForward& op) override { cpu::causal_conv(threads_, op); }
  void causal_conv(const CausalConvBackward& op) override { cpu::causal_conv(threads_, op); }
  void scan(const ScanForward& op) override { cpu::scan(threads_, op); }
  void scan(const ScanBackward& op) override { cpu::scan(threads_, op); }
  void mamba2_step(const Mamba2Step& op) override { cpu::mamba2_step(threads_, op); }
  void activation(const ActivationForward& op) override { cpu::activation(threads_, op); }
  void activation(const ActivationBackward& op) override { cpu::activation(threads_, op); }
  void add(const Add& op) override { cpu::add(threads_, op); }
  void cast(const Cast& op) override { cpu::cast(threads_, op); }
  void column_sums(const ColumnSums& op) override { cpu::column_sums(threads_, op); }
  void centre(const Centre& op) override { cpu::centre(threads_, op); }
  void add_row(const AddRow& op) override { cpu::add_row(threads_, op); }
  void add_outer(const AddOuter& op) override { cpu::add_outer(threads_, op); }
  void cross_entropy(const CrossEntropy& op) override { cpu::cross_entropy(threads_, kernel_, op); }
  void ordered_sum(const OrderedSum& op) override { cpu::ordered_sum(threads_, op); }
  void adamw(const AdamWStep& op) override { cpu::adamw(threads_, op); }
  std::vector<double> squared_norms(std::span<const AdamWTensor> tensors) override {
    return cpu::squared_norms(threads_, tensors);
  }
  void amaxes(const Amaxes& op) override { cpu::amaxes(threads_, op); }
  std::vector<DeviationSums> deviations(std::span<const DeviationTensor> tensors) override {
    return cpu::deviations(threads_, tensors);
  }

 private:
  void copy_checked(std::string_view what, std::span<const std::byte> from, std::span<std::byte> to) {
    TETRAD_CHECK(from.size() <= to.size(), "{}: {} bytes into {}", what, from.size(), to.size());
    parallel_pieces(threads_, from.size(), [&](std::size_t first, std::size_t count) {
      std::memcpy(to.data() + first, from.data() + first, count);
    });
  }

  /// The one taken, and which others there are.
  std::string instructions() const {
    const auto [usable, missing] = cpu_instruction_sets();
    std::string others;
    for (const std::string& name : usable)
      if (name != instruction_set_) others += (others.empty() ? "; also here: " : ", ") + name;
    std::string absent;
    for (const std::string& name : missing)
      absent += (absent.empty() ? "; not on this processor: " : ", ") + name;
    return instruction_set_ + others + absent;
  }

  std::string instruction_set_;
  cpu::ProductKernel kernel_;
  Threads threads_;
};

}  // namespace
}  // namespace tetrad

/// The name differs from variant to variant.
extern "C" tetrad::Backend* TETRAD_CPU_FACTORY(const tetrad::cpu::VariantOptions& options) {
  return new tetrad::CpuBackend(options);
}
