// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the time of a model goes: a backend that times each operation of the one below, and adds them up by
// kind.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks.h"
#include "tetrad/ops/backend.h"

namespace tetrad::bench {

/// Operations that do the same with other operands.
struct KindOfOperation {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0;
  double flop = 0;  //!< of products alone
};

/// Not recorded: what is replayed cannot be told apart.
class ProfilingBackend final : public Backend {
 public:
  explicit ProfilingBackend(Backend& backend) : backend_(backend), timeline_(backend.make_timeline()) {}

  /// What was done since the last call, the longest first. Waits for operations under way.
  std::vector<KindOfOperation> take();

  std::string_view name() const override { return backend_.name(); }
  std::vector<Property> properties() const override { return backend_.properties(); }
  std::vector<Property> kernels() const override { return backend_.kernels(); }
  std::vector<Property> bits_depend_on() const override { return backend_.bits_depend_on(); }
  std::string device_id() const override { return backend_.device_id(); }
  void* stream() const override { return backend_.stream(); }
  Threads& threads() override { return backend_.threads(); }
  Buffer allocate(std::size_t bytes) override { return backend_.allocate(bytes); }
  Buffer allocate_on_host(std::size_t bytes) override { return backend_.allocate_on_host(bytes); }
  std::unique_ptr<MemoryReader> make_reader() override { return backend_.make_reader(); }
  void synchronize() override { backend_.synchronize(); }
  std::int64_t peak_memory() const override { return backend_.peak_memory(); }
  std::optional<std::int64_t> restart_peak() override { return backend_.restart_peak(); }
  std::optional<std::int64_t> free_memory() const override { return backend_.free_memory(); }
  std::optional<std::int64_t> free_host_memory() const override { return backend_.free_host_memory(); }
  bool has_stacks() const override { return backend_.has_stacks(); }
  CodeOrder preferred_order(const QuantSpec& spec) const override { return backend_.preferred_order(spec); }
  bool use_attention_engine(AttentionEngine engine, const AttentionShape& shape) override {
    return backend_.use_attention_engine(engine, shape);
  }
  bool use_host_moments(HostMoments access) override { return backend_.use_host_moments(access); }

  void set_to_zero(std::span<std::byte> memory) override;
  void copy(std::span<const std::byte> from, std::span<std::byte> to) override;
  void copy_in_lane(std::size_t lane, std::span<const std::byte> from, std::span<std::byte> to) override;
  void join_lane(std::size_t lane) override;
  void upload(std::span<const std::byte> from, std::span<std::byte> to) override;
  std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& copy) override;

  QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                      QuantizedTensor& out) override;
  std::array<QuantStats, 2> quantize(const MatrixView& x, const QuantizeTask& first,
                                     const QuantizeTask& second) override;
  void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) override;
  void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
            Accumulate accumulate) override;
  bool pack(const GemmOperand& b, PackedOperand& out) override { return backend_.pack(b, out); }
  void embedding(const EmbeddingForward& op) override;
  void embedding(const EmbeddingBackward& op) override;
  void rms_norm(const RmsNormForward& op) override;
  void rms_norm(const RmsNormBackward& op) override;
  void gated_norm(const GatedNormForward& op) override;
  void gated_norm(const GatedNormBackward& op) override;
  void rope(const Rope& op) override;
  void attention(const AttentionForward& op) override;
  void attention(const AttentionBackward& op) override;
  void attention(const AttentionDecode& op) override;
  void causal_conv(const CausalConvForward& op) override;
  void causal_conv(const CausalConvBackward& op) override;
  void scan(const ScanForward& op) override;
  void scan(const ScanBackward& op) override;
  void mamba2_step(const Mamba2Step& op) override;
  void activation(const ActivationForward& op) override;
  void activation(const ActivationBackward& op) override;
  void add(const Add& op) override;
  void cast(const Cast& op) override;
  void column_sums(const ColumnSums& op) override;
  void centre(const Centre& op) override;
  void add_row(const AddRow& op) override;
  void add_outer(const AddOuter& op) override;
  void cross_entropy(const CrossEntropy& op) override;
  void ordered_sum(const OrderedSum& op) override;
  void adamw(const AdamWStep& op) override;
  std::vector<double> squared_norms(std::span<const AdamWTensor> tensors) override;
  void amaxes(const Amaxes& op) override;
  std::vector<DeviationSums> deviations(std::span<const DeviationTensor> tensors) override;

 private:
  /// The time of one operation: marks before and after it.
  class Timed {
   public:
    Timed(ProfilingBackend& profile, const std::string& kind, double flop = 0);
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    ~Timed();

   private:
    ProfilingBackend& profile_;
  };

  Backend& backend_;
  std::unique_ptr<Timeline> timeline_;
  std::map<std::string, KindOfOperation> kinds_;
  std::vector<KindOfOperation*> operations_;  //!< one for each two marks
};

/// What was watched.
struct Watched {
  std::string name;
  std::string unit;  //!< "step"
  double seconds;    //!< of one
  int times;         //!< how many of them
};
/// A figure for each kind of operation beside the whole, with the speed of products beside the fastest large
/// one if that is given.
void report_profile(const Watched& watched, const std::vector<KindOfOperation>& kinds,
                    const PeakProduct* peak, const Report& report);

}  // namespace tetrad::bench
