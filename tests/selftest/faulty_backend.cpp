// SPDX-License-Identifier: Apache-2.0
#include "selftest/faulty_backend.h"

#include <fmt/format.h>

namespace tetrad::testing {
namespace {

std::string kind_of(const GemmOperand& operand) {
  const QuantizedTensor* tensor = operand.quantized();
  return fmt::format(
      "{}{}", tensor != nullptr ? describe(tensor->spec) : std::string(name_of(operand.dense()->dtype)),
      operand.is_transposed() ? " transposed" : "");
}

std::string_view kind_of(Activation activation) {
  return activation == Activation::swiglu ? "swiglu" : "squared_relu";
}

std::string masked(const std::int32_t* document_starts) {
  return document_starts != nullptr ? ", documents" : "";
}

}  // namespace

bool FaultyBackend::is_planted(const std::string& fault) {
  possible.insert(fault);
  return fault == planted && (!flickers || calls_++ % 2 == 0);
}

/// Bit `bit` of the last byte: of numbers, that byte has the sign and the upper bits of the exponent.
void FaultyBackend::flip(std::byte* element, std::size_t size, unsigned bit) {
  Buffer copy;
  const auto before = good_.readable({element, size}, copy);
  std::vector<std::byte> bytes(before.begin(), before.end());
  (flickers ? bytes.front() : bytes.back()) ^= std::byte{1} << (flickers ? 0 : bit);
  good_.upload(bytes, {element, size});
}

void FaultyBackend::wrote(const std::string& fault, const MutableMatrixView& view) {
  if (!is_planted(fmt::format("{}, {}", fault, name_of(view.dtype)))) return;
  const std::size_t size = static_cast<std::size_t>(bits_of(view.dtype)) / 8;
  const std::int64_t place = view.rows / 2 * view.row_stride + view.cols / 2 * view.col_stride;
  flip(static_cast<std::byte*>(view.data) + place * static_cast<std::int64_t>(size), size, 6);
}

void FaultyBackend::wrote(const std::string& fault, float* values, std::int64_t count) {
  if (values != nullptr) wrote(fault, mutable_view_of(values, 1, count));
}

void FaultyBackend::wrote_bytes(const std::string& fault, std::span<const std::byte> memory) {
  if (!is_planted(fault) || memory.empty()) return;
  flip(const_cast<std::byte*>(memory.data()) + memory.size() / 2, 1, 0);
}

void FaultyBackend::wrote(const std::string& fault, const QuantizedTensor& tensor) {
  wrote_bytes(fault + ", codes", tensor.codes.span<std::byte>());
  wrote_bytes(fault + ", scales", tensor.scales.span<std::byte>());
}

void FaultyBackend::set_to_zero(std::span<std::byte> memory) {
  if (does("set_to_zero")) good_.set_to_zero(memory);
  wrote_bytes("set_to_zero: memory", memory);
}

void FaultyBackend::copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (does("copy")) good_.copy(from, to);
  wrote_bytes("copy: to", to.first(from.size()));
}

void FaultyBackend::copy_in_lane(std::size_t lane, std::span<const std::byte> from, std::span<std::byte> to) {
  if (does("copy_in_lane")) good_.copy_in_lane(lane, from, to);
  good_.join_lane(lane);
  wrote_bytes("copy_in_lane: to", to.first(from.size()));
}

void FaultyBackend::upload(std::span<const std::byte> from, std::span<std::byte> to) {
  if (does("upload")) good_.upload(from, to);
  wrote_bytes("upload: to", to.first(from.size()));
}

std::span<const std::byte> FaultyBackend::readable(std::span<const std::byte> memory, Buffer& copy) {
  const auto bytes = good_.readable(memory, copy);
  if (!is_planted("readable: bytes") || bytes.empty()) return bytes;
  Buffer broken(bytes.size());
  std::ranges::copy(bytes, broken.data());
  broken.data()[bytes.size() / 2] ^= std::byte{1};
  copy = std::move(broken);
  return copy.span<std::byte>();
}

std::function<void()> FaultyBackend::record(const std::function<void()>& work) {
  if (!does("record")) return [] {};
  const auto replay = good_.record(work);
  return replay ? replay : work;
}

QuantStats FaultyBackend::quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                                   QuantizedTensor& out) {
  const QuantStats stats = good_.quantize(x, spec, options, out);
  wrote(fmt::format("quantize: {}, {}{}", describe(spec), name_of(x.dtype),
                    options.form == Form::operand ? ", operand" : ""),
        out);
  return stats;
}

std::array<QuantStats, 2> FaultyBackend::quantize(const MatrixView& x, const QuantizeTask& first,
                                                  const QuantizeTask& second) {
  const auto stats = good_.quantize(x, first, second);
  for (const QuantizeTask* task : {&first, &second})
    wrote(fmt::format("quantize pair: {}", describe(task->spec)), task->out);
  return stats;
}

void FaultyBackend::dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) {
  if (does("dequantize")) good_.dequantize(tensor, out);
  wrote(fmt::format("dequantize: {}", describe(tensor.spec)), out);
}

void FaultyBackend::gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
                         Accumulate accumulate) {
  if (does("gemm")) good_.gemm(a, b, out, accumulate);
  wrote(
      fmt::format("gemm: {} by {}{}", kind_of(a), kind_of(b), accumulate == Accumulate::yes ? ", added" : ""),
      out);
}

void FaultyBackend::embedding(const EmbeddingForward& op) {
  if (does("embedding forward")) good_.embedding(op);
  wrote("embedding forward: out", op.out);
}

void FaultyBackend::embedding(const EmbeddingBackward& op) {
  if (does("embedding backward")) good_.embedding(op);
  wrote("embedding backward: dtable", op.dtable, op.vocab * op.dout.cols);
}

void FaultyBackend::rms_norm(const RmsNormForward& op) {
  if (does("rms_norm forward")) good_.rms_norm(op);
  wrote("rms_norm forward: y", op.y);
  wrote("rms_norm forward: inverse_rms", op.inverse_rms, op.x.rows * op.heads);
}

void FaultyBackend::rms_norm(const RmsNormBackward& op) {
  if (does("rms_norm backward")) good_.rms_norm(op);
  wrote(fmt::format("rms_norm backward: dx{}", op.accumulate == Accumulate::yes ? ", added" : ""), op.dx);
  wrote("rms_norm backward: dweight", op.dweight, op.x.cols / op.heads);
}

void FaultyBackend::gated_norm(const GatedNormForward& op) {
  if (does("gated_norm forward")) good_.gated_norm(op);
  wrote("gated_norm forward: out", op.out);
  wrote("gated_norm forward: inverse_rms", op.inverse_rms, op.y.rows * op.groups);
}

void FaultyBackend::gated_norm(const GatedNormBackward& op) {
  if (does("gated_norm backward")) good_.gated_norm(op);
  wrote("gated_norm backward: dy", op.dy);
  wrote("gated_norm backward: dz", op.dz);
  wrote("gated_norm backward: dweight", op.dweight, op.y.cols);
}

void FaultyBackend::rope(const Rope& op) {
  if (does("rope")) good_.rope(op);
  wrote(fmt::format("rope: x{}{}", op.inverse ? ", inverse" : "", masked(op.document_starts)), op.x);
}

void FaultyBackend::attention(const AttentionForward& op) {
  if (does("attention forward")) good_.attention(op);
  wrote("attention forward: out" + masked(op.document_starts), op.out);
  wrote("attention forward: log_sum_exp", op.log_sum_exp,
        op.shape.batch * op.shape.heads * op.shape.sequence);
}

void FaultyBackend::attention(const AttentionBackward& op) {
  if (does("attention backward")) good_.attention(op);
  wrote("attention backward: dq" + masked(op.document_starts), op.dq);
  wrote("attention backward: dk" + masked(op.document_starts), op.dk);
  wrote("attention backward: dv" + masked(op.document_starts), op.dv);
}

void FaultyBackend::attention(const AttentionDecode& op) {
  if (does("attention decode")) good_.attention(op);
  wrote("attention decode: out", op.out);
}

void FaultyBackend::causal_conv(const CausalConvForward& op) {
  if (does("causal_conv forward")) good_.causal_conv(op);
  wrote("causal_conv forward: out" + masked(op.document_starts), op.out);
}

void FaultyBackend::causal_conv(const CausalConvBackward& op) {
  if (does("causal_conv backward")) good_.causal_conv(op);
  wrote("causal_conv backward: dx" + masked(op.document_starts), op.dx);
  wrote("causal_conv backward: dweight", op.dweight, op.x.cols * op.kernel);
  wrote("causal_conv backward: dbias", op.dbias, op.x.cols);
}

void FaultyBackend::scan(const ScanForward& op) {
  if (does("scan forward")) good_.scan(op);
  wrote("scan forward: y" + masked(op.in.document_starts), op.y);
  wrote("scan forward: chunk_states", op.chunk_states,
        op.shape.batch * op.shape.chunks() * op.shape.inner() * op.shape.state);
}

void FaultyBackend::scan(const ScanBackward& op) {
  if (does("scan backward")) good_.scan(op);
  wrote("scan backward: dx" + masked(op.in.document_starts), op.dx);
  wrote("scan backward: db", op.db);
  wrote("scan backward: dc", op.dc);
  wrote("scan backward: ddt", op.ddt);
  wrote("scan backward: ddt_bias", op.ddt_bias, op.shape.heads);
  wrote("scan backward: da_log", op.da_log, op.shape.heads);
  wrote("scan backward: dd", op.dd, op.shape.heads);
}

void FaultyBackend::mamba2_step(const Mamba2Step& op) {
  if (does("mamba2_step")) good_.mamba2_step(op);
  wrote("mamba2_step: y", op.y);
  wrote("mamba2_step: conv_state", op.conv_state, (op.kernel - 1) * op.shape.conv_channels());
  wrote("mamba2_step: ssm_state", op.ssm_state, op.shape.inner() * op.shape.state);
}

void FaultyBackend::activation(const ActivationForward& op) {
  if (does("activation forward")) good_.activation(op);
  wrote(fmt::format("activation forward: y, {}", kind_of(op.kind)), op.y);
}

void FaultyBackend::activation(const ActivationBackward& op) {
  if (does("activation backward")) good_.activation(op);
  wrote(fmt::format("activation backward: dx, {}", kind_of(op.kind)), op.dx);
}

void FaultyBackend::add(const Add& op) {
  if (does("add")) good_.add(op);
  wrote("add: sum", op.sum);
}

void FaultyBackend::cast(const Cast& op) {
  if (does("cast")) good_.cast(op);
  wrote(fmt::format("cast: from {}", name_of(op.in.dtype)), op.out);
}

void FaultyBackend::column_sums(const ColumnSums& op) {
  if (does("column_sums")) good_.column_sums(op);
  wrote(fmt::format("column_sums: of {}", name_of(op.x.dtype)), op.sums);
}

void FaultyBackend::centre(const Centre& op) {
  if (does("centre")) good_.centre(op);
  wrote("centre: mean", op.mean);
  wrote("centre: out", op.out);
}

void FaultyBackend::add_row(const AddRow& op) {
  if (does("add_row")) good_.add_row(op);
  wrote("add_row: out", op.out);
}

void FaultyBackend::add_outer(const AddOuter& op) {
  if (does("add_outer")) good_.add_outer(op);
  wrote("add_outer: out", op.out);
}

void FaultyBackend::cross_entropy(const CrossEntropy& op) {
  if (does("cross_entropy")) good_.cross_entropy(op);
  wrote("cross_entropy: losses", op.losses, op.hidden.rows);
  if (op.dhidden.data != nullptr) wrote("cross_entropy: dhidden", op.dhidden);
  wrote("cross_entropy: dhead", op.dhead, op.head.rows * op.head.cols);
}

void FaultyBackend::ordered_sum(const OrderedSum& op) {
  if (does("ordered_sum")) good_.ordered_sum(op);
  wrote(fmt::format("ordered_sum: out, {}", name_of(op.dtype)), op.out, op.size);
}

void FaultyBackend::adamw(const AdamWStep& op) {
  if (does("adamw")) good_.adamw(op);
  for (const AdamWTensor& tensor : op.tensors) {
    wrote("adamw: weight", tensor.weight, tensor.size);
    const auto moment = [&](void* data) {
      return MutableMatrixView{data, tensor.moments, 1, tensor.size, tensor.size, 1};
    };
    wrote("adamw: first_moment", moment(tensor.first_moment));
    wrote("adamw: second_moment", moment(tensor.second_moment));
  }
}

std::vector<double> FaultyBackend::squared_norms(std::span<const AdamWTensor> tensors) {
  std::vector<double> norms = good_.squared_norms(tensors);
  if (is_planted("squared_norms: last")) norms.back() *= 1 + 1e-9;
  return norms;
}

void FaultyBackend::amaxes(const Amaxes& op) {
  if (does("amaxes")) good_.amaxes(op);
  wrote("amaxes: bits", reinterpret_cast<float*>(op.bits), std::ssize(op.tensors));
}

std::vector<DeviationSums> FaultyBackend::deviations(std::span<const DeviationTensor> tensors) {
  std::vector<DeviationSums> sums = good_.deviations(tensors);
  if (is_planted("deviations: product")) sums.back().product += 1e-6 * sums.back().reference;
  for (const DeviationTensor& tensor : tensors) wrote("deviations: sum", tensor.sum, tensor.size);
  return sums;
}

}  // namespace tetrad::testing
