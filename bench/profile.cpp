// SPDX-License-Identifier: Apache-2.0
#include "profile.h"

#include <fmt/format.h>

#include <algorithm>

namespace tetrad::bench {
namespace {

std::string kind_of(const GemmOperand& operand) {
  const QuantizedTensor* tensor = operand.quantized();
  return std::string(tensor != nullptr ? name_of(tensor->spec.format) : name_of(operand.dense()->dtype));
}

double flop_of(const GemmOperand& a, const GemmOperand& b) {
  return 2 * static_cast<double>(a.rows()) * static_cast<double>(b.rows()) * static_cast<double>(a.cols());
}

}  // namespace

ProfilingBackend::Timed::Timed(ProfilingBackend& profile, const std::string& kind, double flop)
    : profile_(profile) {
  KindOfOperation& entry = profile.kinds_[kind];
  ++entry.calls;
  entry.flop += flop;
  profile.operations_.push_back(&entry);
  profile.timeline_->mark();
}

ProfilingBackend::Timed::~Timed() { profile_.timeline_->mark(); }

std::vector<KindOfOperation> ProfilingBackend::take() {
  const std::vector<double> marks = timeline_->take();
  for (std::size_t i = 0; i < operations_.size(); ++i)
    operations_[i]->seconds += marks[2 * i + 1] - marks[2 * i];
  std::vector<KindOfOperation> result;
  for (auto& [name, kind] : kinds_) {
    kind.name = name;
    result.push_back(std::move(kind));
  }
  operations_.clear();
  kinds_.clear();
  std::ranges::stable_sort(result, std::ranges::greater(), &KindOfOperation::seconds);
  return result;
}

void report_profile(const Watched& watched, const std::vector<KindOfOperation>& kinds,
                    const PeakProduct* peak, const Report& report) {
  const auto share = [&](const std::string& name, double seconds) {
    report({fmt::format("{}: {}", watched.name, name), "ms", seconds * 1e3, watched.seconds * 1e3,
            watched.unit});
  };
  double rest = watched.seconds;
  for (const KindOfOperation& kind : kinds) {
    const double seconds = kind.seconds / watched.times;
    rest -= seconds;
    share(fmt::format("{} ({} calls)", kind.name, kind.calls / watched.times), seconds);
    if (peak != nullptr && kind.flop > 0)
      report({fmt::format("{}: {}, speed", watched.name, kind.name), "GFLOP/s",
              kind.flop / kind.seconds * 1e-9, peak->flop() / peak->seconds() * 1e-9, peak->name()});
  }
  share("between operations", rest);
}

void ProfilingBackend::set_to_zero(std::span<std::byte> memory) {
  const Timed timed(*this, "zeros");
  backend_.set_to_zero(memory);
}

void ProfilingBackend::copy(std::span<const std::byte> from, std::span<std::byte> to) {
  const Timed timed(*this, "copies");
  backend_.copy(from, to);
}

/// Beside operations: only who waits for it takes time.
void ProfilingBackend::copy_in_lane(std::size_t lane, std::span<const std::byte> from,
                                    std::span<std::byte> to) {
  const Timed timed(*this, "copies beside operations");
  backend_.copy_in_lane(lane, from, to);
}

void ProfilingBackend::join_lane(std::size_t lane) {
  const Timed timed(*this, "waiting for copies beside operations");
  backend_.join_lane(lane);
}

void ProfilingBackend::upload(std::span<const std::byte> from, std::span<std::byte> to) {
  const Timed timed(*this, "copies from the program");
  backend_.upload(from, to);
}

std::span<const std::byte> ProfilingBackend::readable(std::span<const std::byte> memory, Buffer& copy) {
  const Timed timed(*this, "copies to the program");
  return backend_.readable(memory, copy);
}

QuantStats ProfilingBackend::quantize(const MatrixView& x, const QuantSpec& spec,
                                      const QuantizeOptions& options, QuantizedTensor& out) {
  const Timed timed(*this, "quantize " + describe(spec));
  return backend_.quantize(x, spec, options, out);
}

std::array<QuantStats, 2> ProfilingBackend::quantize(const MatrixView& x, const QuantizeTask& first,
                                                     const QuantizeTask& second) {
  const Timed timed(*this, fmt::format("quantize {}; {}", describe(first.spec), describe(second.spec)));
  return backend_.quantize(x, first, second);
}

void ProfilingBackend::dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) {
  const Timed timed(*this, "dequantize " + describe(tensor.spec));
  backend_.dequantize(tensor, out);
}

void ProfilingBackend::gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
                            Accumulate accumulate) {
  const Timed timed(*this, fmt::format("product {} by {}", kind_of(a), kind_of(b)), flop_of(a, b));
  backend_.gemm(a, b, out, accumulate);
}

void ProfilingBackend::embedding(const EmbeddingForward& op) {
  const Timed timed(*this, "embedding forward");
  backend_.embedding(op);
}

void ProfilingBackend::embedding(const EmbeddingBackward& op) {
  const Timed timed(*this, "embedding backward");
  backend_.embedding(op);
}

void ProfilingBackend::rms_norm(const RmsNormForward& op) {
  const Timed timed(*this, "norm forward");
  backend_.rms_norm(op);
}

void ProfilingBackend::rms_norm(const RmsNormBackward& op) {
  const Timed timed(*this, "norm backward");
  backend_.rms_norm(op);
}

void ProfilingBackend::gated_norm(const GatedNormForward& op) {
  const Timed timed(*this, "gated norm forward");
  backend_.gated_norm(op);
}

void ProfilingBackend::gated_norm(const GatedNormBackward& op) {
  const Timed timed(*this, "gated norm backward");
  backend_.gated_norm(op);
}

void ProfilingBackend::rope(const Rope& op) {
  const Timed timed(*this, op.inverse ? "rope backward" : "rope forward");
  backend_.rope(op);
}

void ProfilingBackend::attention(const AttentionForward& op) {
  const Timed timed(*this, "attention forward");
  backend_.attention(op);
}

void ProfilingBackend::attention(const AttentionBackward& op) {
  const Timed timed(*this, "attention backward");
  backend_.attention(op);
}

void ProfilingBackend::attention(const AttentionDecode& op) {
  const Timed timed(*this, "attention of new tokens");
  backend_.attention(op);
}

void ProfilingBackend::causal_conv(const CausalConvForward& op) {
  const Timed timed(*this, "convolution forward");
  backend_.causal_conv(op);
}

void ProfilingBackend::causal_conv(const CausalConvBackward& op) {
  const Timed timed(*this, "convolution backward");
  backend_.causal_conv(op);
}

void ProfilingBackend::scan(const ScanForward& op) {
  const Timed timed(*this, "scan forward");
  backend_.scan(op);
}

void ProfilingBackend::scan(const ScanBackward& op) {
  const Timed timed(*this, "scan backward");
  backend_.scan(op);
}

void ProfilingBackend::mamba2_step(const Mamba2Step& op) {
  const Timed timed(*this, "Mamba-2 of new tokens");
  backend_.mamba2_step(op);
}

void ProfilingBackend::activation(const ActivationForward& op) {
  const Timed timed(*this, "activation forward");
  backend_.activation(op);
}

void ProfilingBackend::activation(const ActivationBackward& op) {
  const Timed timed(*this, "activation backward");
  backend_.activation(op);
}

void ProfilingBackend::add(const Add& op) {
  const Timed timed(*this, "residual sums");
  backend_.add(op);
}

void ProfilingBackend::cast(const Cast& op) {
  const Timed timed(*this, "casts");
  backend_.cast(op);
}

void ProfilingBackend::column_sums(const ColumnSums& op) {
  const Timed timed(*this, "column sums");
  backend_.column_sums(op);
}

void ProfilingBackend::centre(const Centre& op) {
  const Timed timed(*this, "centring");
  backend_.centre(op);
}

void ProfilingBackend::add_row(const AddRow& op) {
  const Timed timed(*this, "row added to all rows");
  backend_.add_row(op);
}

void ProfilingBackend::add_outer(const AddOuter& op) {
  const Timed timed(*this, "outer products");
  backend_.add_outer(op);
}

void ProfilingBackend::cross_entropy(const CrossEntropy& op) {
  const Timed timed(*this, "head and loss");
  backend_.cross_entropy(op);
}

void ProfilingBackend::ordered_sum(const OrderedSum& op) {
  const Timed timed(*this, "ordered sums");
  backend_.ordered_sum(op);
}

void ProfilingBackend::adamw(const AdamWStep& op) {
  const Timed timed(*this, "AdamW");
  backend_.adamw(op);
}

std::vector<double> ProfilingBackend::squared_norms(std::span<const AdamWTensor> tensors) {
  const Timed timed(*this, "norm of the gradients");
  return backend_.squared_norms(tensors);
}

void ProfilingBackend::amaxes(const Amaxes& op) {
  const Timed timed(*this, "amaxes");
  backend_.amaxes(op);
}

std::vector<DeviationSums> ProfilingBackend::deviations(std::span<const DeviationTensor> tensors) {
  const Timed timed(*this, "deviations");
  return backend_.deviations(tensors);
}

}  // namespace tetrad::bench
