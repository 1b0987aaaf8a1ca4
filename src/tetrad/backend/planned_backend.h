// SPDX-License-Identifier: Apache-2.0
#pragma once
// A device that is not there: it gives out addresses, counts their bytes, and computes nothing. So that the
// code that moves a model's tensors can be run for a plan, with a model of any size. Who asks for values gets
// zeros.

#include <memory>

#include "tetrad/ops/backend.h"

namespace tetrad {

class PlannedBackend final : public Backend {
 public:
  PlannedBackend();

  std::int64_t peak_memory() const override;
  std::int64_t memory_in_use() const;
  /// Nobody may look at it: not even the program can read what has only an address.
  Buffer allocate(std::size_t bytes) override;

  std::string_view name() const override { return "planned"; }
  std::vector<Property> properties() const override { return {}; }
  std::vector<Property> kernels() const override { return {}; }
  Threads& threads() override { return threads_; }
  void set_to_zero(std::span<std::byte>) override {}
  void copy(std::span<const std::byte>, std::span<std::byte>) override {}
  void upload(std::span<const std::byte>, std::span<std::byte>) override {}
  std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& copy) override;
  std::unique_ptr<MemoryReader> make_reader() override;
  void synchronize() override {}

  /// Codes have addresses, too.
  QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                      QuantizedTensor& quantized) override;
  void dequantize(const QuantizedTensor&, const MutableMatrixView&) override {}
  void gemm(const GemmOperand&, const GemmOperand&, const MutableMatrixView&, Accumulate) override {}
  void embedding(const EmbeddingForward&) override {}
  void embedding(const EmbeddingBackward&) override {}
  void rms_norm(const RmsNormForward&) override {}
  void rms_norm(const RmsNormBackward&) override {}
  void gated_norm(const GatedNormForward&) override {}
  void gated_norm(const GatedNormBackward&) override {}
  void rope(const Rope&) override {}
  void attention(const AttentionForward&) override {}
  void attention(const AttentionBackward&) override {}
  void attention(const AttentionDecode&) override {}
  void causal_conv(const CausalConvForward&) override {}
  void causal_conv(const CausalConvBackward&) override {}
  void scan(const ScanForward&) override {}
  void scan(const ScanBackward&) override {}
  void mamba2_step(const Mamba2Step&) override {}
  void activation(const ActivationForward&) override {}
  void activation(const ActivationBackward&) override {}
  void add(const Add&) override {}
  void cast(const Cast&) override {}
  void column_sums(const ColumnSums&) override {}
  void centre(const Centre&) override {}
  void add_row(const AddRow&) override {}
  void add_outer(const AddOuter&) override {}
  void cross_entropy(const CrossEntropy&) override {}
  void ordered_sum(const OrderedSum&) override {}
  void adamw(const AdamWStep&) override {}
  std::vector<double> squared_norms(std::span<const AdamWTensor> tensors) override {
    return std::vector<double>(tensors.size());
  }
  void amaxes(const Amaxes&) override {}
  std::vector<DeviationSums> deviations(std::span<const DeviationTensor> tensors) override {
    return std::vector<DeviationSums>(tensors.size());
  }

 private:
  class Addresses;

  Threads threads_{1};
  std::shared_ptr<Addresses> addresses_;
};

}  // namespace tetrad
