// SPDX-License-Identifier: Apache-2.0
#include "support/on_device.h"

#include <cstring>

namespace tetrad::testing {
namespace {

/// The data of one operation, on the device while this lives; finish() brings back what was written.
class Staged {
 public:
  explicit Staged(Backend& device) : device_(device) {}

  MatrixView in(MatrixView view) {
    if (view.data != nullptr) view.data = copy(view.data, bytes_of(view), false);
    return view;
  }
  MutableMatrixView out(MutableMatrixView view) {
    if (view.data != nullptr) view.data = copy(view.data, bytes_of(view), true);
    return view;
  }
  template <typename T>
  const T* in(const T* data, std::int64_t count) {
    return static_cast<const T*>(copy(data, static_cast<std::size_t>(count) * sizeof(T), false));
  }
  template <typename T>
  T* out(T* data, std::int64_t count) {
    return static_cast<T*>(copy(data, static_cast<std::size_t>(count) * sizeof(T), true));
  }
  ScanInputs in(ScanInputs inputs, std::int64_t heads) {
    return {in(inputs.x),
            in(inputs.b),
            in(inputs.c),
            in(inputs.dt),
            in(inputs.dt_bias, heads),
            in(inputs.a_log, heads),
            in(inputs.d, heads),
            in(inputs.document_starts, inputs.x.rows)};
  }

  /// A quantized tensor of the program on the device.
  const QuantizedTensor& in(const QuantizedTensor& tensor) {
    QuantizedTensor& result = tensors_.emplace_back();
    result.spec = tensor.spec;
    result.rows = tensor.rows;
    result.cols = tensor.cols;
    result.order = tensor.order;
    result.form = tensor.form;
    result.amax = tensor.amax;
    result.codes = upload(tensor.codes.span<std::byte>());
    result.scales = upload(tensor.scales.span<std::byte>());
    result.device_amax = upload(std::as_bytes(std::span(&tensor.amax, 1)));
    return result;
  }
  /// A report that the program wants, made on the device.
  AmaxReport* out(AmaxReport* report) {
    if (report == nullptr) return nullptr;
    return &reports_.emplace_back(report, AmaxReport{out(report->values, 2), false}).second;
  }
  QuantizeOptions in(QuantizeOptions options) {
    if (options.input == nullptr) return options;
    options.input =
        &reports_.emplace_back(nullptr, AmaxReport{copy_of(options.input->values), options.input->known})
             .second;
    return options;
  }
  GemmOperand in(const GemmOperand& operand) {
    const GemmOperand staged = operand.quantized() != nullptr ? GemmOperand(in(*operand.quantized()))
                                                              : GemmOperand(in(*operand.dense()));
    return operand.is_transposed() ? staged.transposed() : staged;
  }

  void finish() {
    for (const Copy& copy : copies_) {
      if (!copy.written) continue;
      // Only what changed: views of one matrix lie between each other.
      Buffer down;
      const auto bytes = device_.readable({copy.buffer.data() + copy.offset, copy.size}, down);
      for (std::size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] != copy.before[i]) static_cast<std::byte*>(copy.host)[i] = bytes[i];
    }
    for (auto& [report, staged] : reports_)
      if (report != nullptr) report->known = staged.known;
    device_.synchronize();
  }

  Buffer upload(std::span<const std::byte> bytes) {
    Buffer buffer = device_.allocate(bytes.size());
    device_.upload(bytes, buffer.span<std::byte>());
    return buffer;
  }

 private:
  struct Copy {
    void* host;
    std::size_t size;
    Buffer buffer;
    std::size_t offset;
    bool written;
    std::vector<std::byte> before;
  };

  float* copy_of(const float* pair) { return static_cast<float*>(copy(pair, 2 * sizeof(float), false)); }

  template <typename View>
  static std::size_t bytes_of(const View& view) {
    const std::int64_t last = (view.rows - 1) * view.row_stride + (view.cols - 1) * view.col_stride;
    return view.size() == 0 ? 0 : static_cast<std::size_t>((last + 1) * bits_of(view.dtype) / 8);
  }

  void* copy(const void* host, std::size_t bytes, bool written) {
    if (host == nullptr) return nullptr;
    constexpr std::uintptr_t kAlignment = 256;
    constexpr std::size_t kSlack =
        256;  // the last line of a matrix has a stride too, and libraries may read it
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(host) % kAlignment;
    const auto* first = static_cast<const std::byte*>(host);
    Copy& copy = copies_.emplace_back(Copy{const_cast<void*>(host),
                                           bytes,
                                           device_.allocate(offset + bytes + kSlack),
                                           offset,
                                           written,
                                           {first, first + bytes}});
    device_.upload(copy.before, {copy.buffer.data() + offset, bytes});
    return copy.buffer.data() + offset;
  }

  Backend& device_;
  std::list<Copy> copies_;
  std::list<QuantizedTensor> tensors_;
  std::list<std::pair<AmaxReport*, AmaxReport>>
      reports_;  //!< the program's, if it is to learn of it; the device's
};

std::vector<AdamWTensor> stage(Staged& staged, std::span<const AdamWTensor> tensors) {
  std::vector<AdamWTensor> result;
  for (const AdamWTensor& tensor : tensors) {
    const auto moment = [&](void* data) {
      return staged.out(MutableMatrixView{data, tensor.moments, 1, tensor.size, tensor.size, 1}).data;
    };
    AdamWTensor& own = result.emplace_back(tensor);
    own.weight = staged.out(tensor.weight, tensor.size);
    own.gradient = staged.in(tensor.gradient, tensor.size);
    own.first_moment = moment(tensor.first_moment);
    own.second_moment = moment(tensor.second_moment);
  }
  return result;
}

void bring_down(Backend& device, const QuantizedTensor& from, QuantizedTensor& to) {
  const auto down = [&](const Buffer& buffer) {
    Buffer copy;
    device.readable(buffer.span<std::byte>(), copy);
    return copy;
  };
  to.spec = from.spec;
  to.rows = from.rows;
  to.cols = from.cols;
  to.order = from.order;
  to.form = from.form;
  to.codes = down(from.codes);
  to.scales = down(from.scales);
  const Buffer amax = down(from.device_amax);
  to.amax = *amax.as<float>();
}

std::int64_t group_count(const MatrixView& view, std::int64_t groups) { return view.rows * groups; }
/// Heads that the device has to refuse come here too.
std::int64_t head_width(const MatrixView& view, std::int64_t heads) {
  return heads > 0 ? view.cols / heads : view.cols;
}

}  // namespace

void OnDevice::set_to_zero(std::span<std::byte> memory) {
  Staged staged(device_);
  device_.set_to_zero({staged.out(memory.data(), static_cast<std::int64_t>(memory.size())), memory.size()});
  staged.finish();
}

void OnDevice::upload(std::span<const std::byte> from, std::span<std::byte> to) {
  std::memcpy(to.data(), from.data(), from.size());
}

std::span<const std::byte> OnDevice::readable(std::span<const std::byte> memory, Buffer& /*copy*/) {
  return memory;
}

QuantStats OnDevice::quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                              QuantizedTensor& out) {
  Staged staged(device_);
  QuantizedTensor on_device;
  const QuantStats stats = device_.quantize(staged.in(x), spec, staged.in(options), on_device);
  bring_down(device_, on_device, out);
  return stats;
}

std::array<QuantStats, 2> OnDevice::quantize(const MatrixView& x, const QuantizeTask& first,
                                             const QuantizeTask& second) {
  Staged staged(device_);
  QuantizedTensor one;
  QuantizedTensor two;
  const QuantizeOptions first_options = staged.in(first.options);
  const QuantizeOptions second_options = staged.in(second.options);
  const std::array<QuantStats, 2> stats =
      device_.quantize(staged.in(x), {first.spec, first_options, one}, {second.spec, second_options, two});
  bring_down(device_, one, first.out);
  bring_down(device_, two, second.out);
  return stats;
}

void OnDevice::dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) {
  Staged staged(device_);
  device_.dequantize(staged.in(tensor), staged.out(out));
  staged.finish();
}

void OnDevice::gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
                    Accumulate accumulate) {
  Staged staged(device_);
  device_.gemm(staged.in(a), staged.in(b), staged.out(out), accumulate);
  staged.finish();
}

void OnDevice::embedding(const EmbeddingForward& op) {
  Staged staged(device_);
  device_.embedding(EmbeddingForward{staged.in(op.tokens, op.out.rows),
                                     staged.in(op.table, op.vocab * op.out.cols), op.vocab,
                                     staged.out(op.out)});
  staged.finish();
}

void OnDevice::embedding(const EmbeddingBackward& op) {
  Staged staged(device_);
  device_.embedding(EmbeddingBackward{staged.in(op.tokens, op.dout.rows), staged.in(op.dout), op.vocab,
                                      staged.out(op.dtable, op.vocab * op.dout.cols)});
  staged.finish();
}

void OnDevice::rms_norm(const RmsNormForward& op) {
  Staged staged(device_);
  device_.rms_norm(RmsNormForward{staged.in(op.x), staged.in(op.weight, head_width(op.x, op.heads)),
                                  op.epsilon, staged.out(op.y),
                                  staged.out(op.inverse_rms, group_count(op.x, op.heads)), op.heads});
  staged.finish();
}

void OnDevice::rms_norm(const RmsNormBackward& op) {
  Staged staged(device_);
  device_.rms_norm(RmsNormBackward{staged.in(op.x), staged.in(op.weight, head_width(op.x, op.heads)),
                                   staged.in(op.inverse_rms, group_count(op.x, op.heads)), staged.in(op.dy),
                                   staged.out(op.dx), staged.out(op.dweight, head_width(op.x, op.heads)),
                                   op.heads, op.accumulate});
  staged.finish();
}

void OnDevice::gated_norm(const GatedNormForward& op) {
  Staged staged(device_);
  device_.gated_norm(GatedNormForward{staged.in(op.y), staged.in(op.z), staged.in(op.weight, op.y.cols),
                                      op.groups, op.epsilon, staged.out(op.out),
                                      staged.out(op.inverse_rms, group_count(op.y, op.groups))});
  staged.finish();
}

void OnDevice::gated_norm(const GatedNormBackward& op) {
  Staged staged(device_);
  device_.gated_norm(GatedNormBackward{staged.in(op.y), staged.in(op.z), staged.in(op.weight, op.y.cols),
                                       op.groups, staged.in(op.inverse_rms, group_count(op.y, op.groups)),
                                       staged.in(op.dout), staged.out(op.dy), staged.out(op.dz),
                                       staged.out(op.dweight, op.y.cols)});
  staged.finish();
}

void OnDevice::rope(const Rope& op) {
  Staged staged(device_);
  Rope own = op;
  own.x = staged.out(op.x);
  own.frequencies = staged.in(op.frequencies, op.head_dim / 2);
  own.document_starts = staged.in(op.document_starts, op.x.rows);
  device_.rope(own);
  staged.finish();
}

void OnDevice::attention(const AttentionForward& op) {
  Staged staged(device_);
  const AttentionShape& s = op.shape;
  device_.attention(AttentionForward{s, staged.in(op.q), staged.in(op.k), staged.in(op.v), staged.out(op.out),
                                     staged.out(op.log_sum_exp, s.batch * s.heads * s.sequence),
                                     staged.in(op.document_starts, s.batch * s.sequence)});
  staged.finish();
}

void OnDevice::attention(const AttentionBackward& op) {
  Staged staged(device_);
  const AttentionShape& s = op.shape;
  device_.attention(AttentionBackward{s, staged.in(op.q), staged.in(op.k), staged.in(op.v), staged.in(op.out),
                                      staged.in(op.log_sum_exp, s.batch * s.heads * s.sequence),
                                      staged.in(op.dout), staged.out(op.dq), staged.out(op.dk),
                                      staged.out(op.dv), staged.in(op.document_starts, s.batch * s.sequence),
                                      op.by_parts});
  staged.finish();
}

void OnDevice::attention(const AttentionDecode& op) {
  Staged staged(device_);
  device_.attention(AttentionDecode{op.shape, op.cached, staged.in(op.q), staged.in(op.k), staged.in(op.v),
                                    staged.out(op.out)});
  staged.finish();
}

void OnDevice::causal_conv(const CausalConvForward& op) {
  Staged staged(device_);
  CausalConvForward own = op;
  own.x = staged.in(op.x);
  own.weight = staged.in(op.weight, op.x.cols * op.kernel);
  own.bias = staged.in(op.bias, op.x.cols);
  own.out = staged.out(op.out);
  own.document_starts = staged.in(op.document_starts, op.x.rows);
  device_.causal_conv(own);
  staged.finish();
}

void OnDevice::causal_conv(const CausalConvBackward& op) {
  Staged staged(device_);
  CausalConvBackward own = op;
  own.x = staged.in(op.x);
  own.weight = staged.in(op.weight, op.x.cols * op.kernel);
  own.bias = staged.in(op.bias, op.x.cols);
  own.dout = staged.in(op.dout);
  own.dx = staged.out(op.dx);
  own.dweight = staged.out(op.dweight, op.x.cols * op.kernel);
  own.dbias = staged.out(op.dbias, op.x.cols);
  own.document_starts = staged.in(op.document_starts, op.x.rows);
  device_.causal_conv(own);
  staged.finish();
}

void OnDevice::scan(const ScanForward& op) {
  check(op);  // sizes are computed from the shape below
  Staged staged(device_);
  const Mamba2Shape& s = op.shape;
  device_.scan(ScanForward{s, staged.in(op.in, s.heads), staged.out(op.y),
                           staged.out(op.chunk_states, s.batch * s.chunks() * s.inner() * s.state)});
  staged.finish();
}

void OnDevice::scan(const ScanBackward& op) {
  check(op);
  Staged staged(device_);
  const Mamba2Shape& s = op.shape;
  device_.scan(ScanBackward{
      s, staged.in(op.in, s.heads), staged.in(op.chunk_states, s.batch * s.chunks() * s.inner() * s.state),
      staged.in(op.dy), staged.out(op.dx), staged.out(op.db), staged.out(op.dc), staged.out(op.ddt),
      staged.out(op.ddt_bias, s.heads), staged.out(op.da_log, s.heads), staged.out(op.dd, s.heads)});
  staged.finish();
}

void OnDevice::mamba2_step(const Mamba2Step& op) {
  Staged staged(device_);
  const Mamba2Shape& s = op.shape;
  Mamba2Step own = op;
  own.xbc = staged.in(op.xbc);
  own.dt = staged.in(op.dt);
  own.conv_weight = staged.in(op.conv_weight, s.conv_channels() * op.kernel);
  own.conv_bias = staged.in(op.conv_bias, s.conv_channels());
  own.dt_bias = staged.in(op.dt_bias, s.heads);
  own.a_log = staged.in(op.a_log, s.heads);
  own.d = staged.in(op.d, s.heads);
  own.conv_state = staged.out(op.conv_state, (op.kernel - 1) * s.conv_channels());
  own.ssm_state = staged.out(op.ssm_state, s.inner() * s.state);
  own.y = staged.out(op.y);
  device_.mamba2_step(own);
  staged.finish();
}

void OnDevice::activation(const ActivationForward& op) {
  Staged staged(device_);
  device_.activation(ActivationForward{op.kind, staged.in(op.x), staged.out(op.y), staged.out(op.amax)});
  staged.finish();
}

void OnDevice::activation(const ActivationBackward& op) {
  Staged staged(device_);
  device_.activation(
      ActivationBackward{op.kind, staged.in(op.x), staged.in(op.dy), staged.out(op.dx), staged.out(op.amax)});
  staged.finish();
}

void OnDevice::add(const Add& op) {
  Staged staged(device_);
  device_.add({staged.in(op.a), staged.in(op.b), staged.out(op.sum)});
  staged.finish();
}

void OnDevice::cast(const Cast& op) {
  Staged staged(device_);
  device_.cast({staged.in(op.in), staged.out(op.out)});
  staged.finish();
}

void OnDevice::column_sums(const ColumnSums& op) {
  Staged staged(device_);
  device_.column_sums({staged.in(op.x), staged.out(op.sums)});
  staged.finish();
}

void OnDevice::centre(const Centre& op) {
  Staged staged(device_);
  device_.centre({staged.in(op.x), staged.in(op.sums), staged.out(op.mean), staged.out(op.out)});
  staged.finish();
}

void OnDevice::add_row(const AddRow& op) {
  Staged staged(device_);
  device_.add_row({staged.in(op.row), staged.out(op.out)});
  staged.finish();
}

void OnDevice::add_outer(const AddOuter& op) {
  Staged staged(device_);
  device_.add_outer({staged.in(op.column), staged.in(op.row), staged.out(op.out)});
  staged.finish();
}

void OnDevice::cross_entropy(const CrossEntropy& op) {
  Staged staged(device_);
  CrossEntropy own = op;
  own.hidden = staged.in(op.hidden);
  own.head = staged.in(op.head);
  own.targets = staged.in(op.targets, op.hidden.rows);
  own.losses = staged.out(op.losses, op.hidden.rows);
  own.dhidden = staged.out(op.dhidden);
  own.dhead = staged.out(op.dhead, op.head.rows * op.head.cols);
  device_.cross_entropy(own);
  staged.finish();
}

void OnDevice::ordered_sum(const OrderedSum& op) {
  check(op);  // before sizes are taken from it
  Staged staged(device_);
  std::vector<const void*> parts;
  for (const void* part : op.parts)
    parts.push_back(staged.in(MatrixView{part, op.dtype, 1, op.size, op.size, 1}).data);
  OrderedSum own = op;
  own.parts = parts;
  own.out = staged.out(op.out, op.size);
  device_.ordered_sum(own);
  staged.finish();
}

void OnDevice::adamw(const AdamWStep& op) {
  Staged staged(device_);
  const std::vector<AdamWTensor> tensors = stage(staged, op.tensors);
  AdamWStep own = op;
  own.tensors = tensors;
  device_.adamw(own);
  staged.finish();
}

std::vector<double> OnDevice::squared_norms(std::span<const AdamWTensor> tensors) {
  Staged staged(device_);
  return device_.squared_norms(stage(staged, tensors));
}

void OnDevice::amaxes(const Amaxes& op) {
  Staged staged(device_);
  std::vector<Amaxes::Tensor> own;
  for (const Amaxes::Tensor& tensor : op.tensors)
    own.push_back({staged.in(tensor.values, tensor.size), tensor.size});
  device_.amaxes({own, staged.out(op.bits, std::ssize(op.tensors))});
  staged.finish();
}

std::vector<DeviationSums> OnDevice::deviations(std::span<const DeviationTensor> tensors) {
  Staged staged(device_);
  std::vector<DeviationTensor> own;
  for (const DeviationTensor& tensor : tensors)
    own.push_back({staged.in(tensor.value, tensor.size), staged.in(tensor.reference, tensor.size),
                   staged.out(tensor.sum, tensor.size), tensor.size});
  std::vector<DeviationSums> sums = device_.deviations(own);
  staged.finish();
  return sums;
}

}  // namespace tetrad::testing
