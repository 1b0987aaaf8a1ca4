// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lets tests that keep everything in the program's memory run on a device: each operation's data is copied up
// before it and down after it. Addresses keep their alignment, so that a test of unaligned views stays one.

#include <list>

#include "tetrad/ops/backend.h"

namespace tetrad::testing {

class OnDevice final : public Backend {
 public:
  explicit OnDevice(Backend& device) : device_(device) {}

  std::string_view name() const override { return device_.name(); }
  std::vector<Property> properties() const override { return device_.properties(); }
  std::vector<Property> kernels() const override { return device_.kernels(); }

  Threads& threads() override { return device_.threads(); }
  Buffer allocate(std::size_t bytes) override { return Buffer(bytes); }
  void set_to_zero(std::span<std::byte> memory) override;
  void copy(std::span<const std::byte> from, std::span<std::byte> to) override { upload(from, to); }
  /// As late as it may be done: whoever does not wait for it sees what was there before.
  void copy_in_lane(std::size_t lane, std::span<const std::byte> from, std::span<std::byte> to) override {
    lanes_.at(lane).push_back({from, to});
  }
  void join_lane(std::size_t lane) override {
    for (const Copy& each : lanes_.at(lane)) copy(each.from, each.to);
    lanes_.at(lane).clear();
  }
  void upload(std::span<const std::byte> from, std::span<std::byte> to) override;
  std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& copy) override;
  std::unique_ptr<MemoryReader> make_reader() override { return std::make_unique<PlainMemoryReader>(); }
  void synchronize() override { device_.synchronize(); }
  std::int64_t peak_memory() const override { return device_.peak_memory(); }
  std::optional<std::int64_t> restart_peak() override { return device_.restart_peak(); }
  std::optional<std::int64_t> free_memory() const override { return device_.free_memory(); }

  CodeOrder preferred_order(const QuantSpec& spec) const override { return device_.preferred_order(spec); }
  QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                      QuantizedTensor& out) override;
  std::array<QuantStats, 2> quantize(const MatrixView& x, const QuantizeTask& first,
                                     const QuantizeTask& second) override;
  void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) override;
  void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
            Accumulate accumulate) override;

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
  bool use_attention_engine(AttentionEngine engine, const AttentionShape& shape) override {
    return device_.use_attention_engine(engine, shape);
  }
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
  struct Copy {
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };

  Backend& device_;
  std::array<std::vector<Copy>, kCopyLanes> lanes_;
};

}  // namespace tetrad::testing
