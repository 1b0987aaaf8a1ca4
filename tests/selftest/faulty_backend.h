// SPDX-License-Identifier: Apache-2.0
#pragma once
// A backend with one fault, planted by name: a bit of one element of one output of one operation is flipped,
// or the operation is left out. Everything else is the backend below.

#include <set>
#include <string>

#include "tetrad/ops/backend.h"

namespace tetrad::testing {

class FaultyBackend final : public Backend {
 public:
  explicit FaultyBackend(Backend& good) : good_(good) {}

  /// The name of one fault; empty: none. Faults are named "operation: output, …" and "operation: not done".
  std::string planted;
  /// The flipped bit is the last of an element's, and it is flipped every other time only.
  bool flickers = false;
  /// What it says that it is; empty: what is below.
  std::string device;
  /// The faults that would have shown in what was called so far.
  std::set<std::string> possible;

  std::string_view name() const override { return device.empty() ? good_.name() : "cuda"; }
  std::vector<Property> properties() const override {
    if (device.empty()) return good_.properties();
    return {{"device", device}, {"compute capability", "9.0"}, {"CUDA", "13.0 (driver 13.0)"}};
  }
  std::vector<Property> kernels() const override { return good_.kernels(); }
  Threads& threads() override { return good_.threads(); }
  Buffer allocate(std::size_t bytes) override { return good_.allocate(bytes); }
  void set_to_zero(std::span<std::byte> memory) override;
  void copy(std::span<const std::byte> from, std::span<std::byte> to) override;
  void copy_in_lane(std::size_t lane, std::span<const std::byte> from, std::span<std::byte> to) override;
  void join_lane(std::size_t lane) override { good_.join_lane(lane); }
  void upload(std::span<const std::byte> from, std::span<std::byte> to) override;
  std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& copy) override;
  std::unique_ptr<MemoryReader> make_reader() override { return good_.make_reader(); }
  void synchronize() override { good_.synchronize(); }
  std::function<void()> record(const std::function<void()>& work) override;
  std::int64_t peak_memory() const override { return good_.peak_memory(); }
  CodeOrder preferred_order(const QuantSpec& spec) const override { return good_.preferred_order(spec); }
  bool use_attention_engine(AttentionEngine engine, const AttentionShape& shape) override {
    return good_.use_attention_engine(engine, shape);
  }

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
  /// Whether the fault of this name is planted here.
  bool is_planted(const std::string& fault);
  /// Whether the operation is to be done.
  bool does(const std::string& operation) { return !is_planted(operation + ": not done"); }
  /// What an operation has written.
  void wrote(const std::string& fault, const MutableMatrixView& view);
  void wrote(const std::string& fault, float* values, std::int64_t count);
  void wrote(const std::string& fault, const QuantizedTensor& tensor);
  void wrote_bytes(const std::string& fault, std::span<const std::byte> memory);
  void flip(std::byte* element, std::size_t size, unsigned bit);

  Backend& good_;
  unsigned calls_ = 0;
};

}  // namespace tetrad::testing
