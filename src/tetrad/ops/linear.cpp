// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/linear.h"

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

constexpr std::uint32_t kSignStream = 0xFFFFFFFFu;  // no operand has this id

/// Signs of the transform for one step, when they are drawn anew for each: the same for all microbatches,
/// which share the weight's codes.
SignMask step_signs(const LinearKey& key, Operand operand) {
  const RandomStream stream{key.seed_of(operand), key.step, 0, kSignStream};
  return repeated_signs(stream.group(0)[0] & 0xFFFFu);
}

/// Signs of the two operands of one product, when no other product has the same.
SignMask fresh_signs(const LinearKey& key, Operand operand) {
  constexpr std::uint32_t kProducts = kOperands / 2;
  const RandomStream stream{key.seed_of(operand), key.step, key.microbatch, kSignStream};
  const PhiloxWords words = stream.group(key.layer * kProducts + static_cast<std::uint32_t>(operand) / 2);
  return {{words[0], words[1], words[2], words[3]}};
}

bool has_fresh_signs(const LinearPrecision& precision, Operand operand) {
  return precision.signs == SignSource::fresh && precision[operand] && precision[operand]->hadamard > 0;
}

/// One form of a matrix.
struct Wanted {
  Operand operand;
  std::optional<QuantSpec> spec;  //!< nothing: the form is not wanted
  Form form;
  QuantizedTensor* out;
};

QuantizeOptions options_of(const LinearCall& call, const Wanted& wanted, const AmaxReport* amax) {
  QuantizeOptions options;
  options.random = call.key.stream(wanted.operand);
  options.key = call.key_in_memory;
  options.order = call.backend.preferred_order(*wanted.spec);
  options.form = wanted.form;
  options.telemetry = call.telemetry;
  if (wanted.operand == Operand::fprop_x) options.stack = call.stack;
  if (options.stack.empty()) options.input = amax;  // which is of all of them
  if (call.parts != nullptr) {
    const OperandPart& part = (*call.parts)[static_cast<std::size_t>(wanted.operand)];
    options.part = part.part;
    options.amax = part.amax;
  }
  return options;
}

void report(const LinearCall& call, Operand operand, const QuantStats& stats) {
  if (call.stats != nullptr) (*call.stats)[static_cast<std::size_t>(operand)] = stats;
}

void quantize(const LinearCall& call, const MatrixView& x, const AmaxReport* amax, const Wanted& wanted) {
  if (!wanted.spec) return;
  const QuantizeOptions options = options_of(call, wanted, amax);
  report(call, wanted.operand, call.backend.quantize(x, *wanted.spec, options, *wanted.out));
}

/// Both forms in one pass over x where the backend can.
void quantize(const LinearCall& call, const MatrixView& x, const AmaxReport* amax, const Wanted& first,
              const Wanted& second) {
  if (!first.spec || !second.spec) {
    quantize(call, x, amax, first);
    quantize(call, x, amax, second);
    return;
  }
  const QuantizeOptions first_options = options_of(call, first, amax);
  const QuantizeOptions second_options = options_of(call, second, amax);
  const auto stats = call.backend.quantize(x, {*first.spec, first_options, *first.out},
                                           {*second.spec, second_options, *second.out});
  report(call, first.operand, stats[0]);
  report(call, second.operand, stats[1]);
}

LinearSaved saved_of(const Wanted& wanted, const MatrixView& x, const Buffer* mean) {
  return wanted.spec ? LinearSaved{x, wanted.out, mean} : LinearSaved{x};
}

/// A matrix in memory that is reused where it is large enough.
MutableMatrixView matrix_in(Buffer& memory, const LinearCall& call, DType dtype, std::int64_t rows,
                            std::int64_t cols) {
  const auto bytes = static_cast<std::size_t>(rows * cols * bits_of(dtype) / 8);
  if (!memory.refit(bytes)) {
    memory = {};  // first: both need not fit
    memory = call.backend.allocate(bytes);
  }
  return {memory.data(), dtype, rows, cols, cols, 1};
}
/// f32 [1, cols] that matrix_in() made.
MatrixView row_in(const Buffer& memory) {
  const auto cols = static_cast<std::int64_t>(memory.size() / sizeof(float));
  return {memory.data(), DType::f32, 1, cols, cols, 1};
}

MatrixView decoded(const LinearCall& call, const QuantizedTensor& codes, DType dtype, Buffer& memory) {
  const MutableMatrixView values = matrix_in(memory, call, dtype, codes.rows, codes.cols);
  call.backend.dequantize(codes, values);
  return as_const(values);
}

MatrixView sums_of_columns(const LinearCall& call, const MatrixView& x, LinearWorkspace& workspace) {
  const MutableMatrixView sums = matrix_in(workspace.sums, call, DType::f32, 1, x.cols);
  call.backend.column_sums({x, sums});
  return as_const(sums);
}

/// x - 1 mean^T in the workspace.
MatrixView centred(const LinearCall& call, const MatrixView& x, LinearWorkspace& workspace, Buffer* mean) {
  TETRAD_CHECK(mean != nullptr, "linear: the mean of x needs memory");
  const MatrixView sums = sums_of_columns(call, x, workspace);
  const MutableMatrixView values = matrix_in(workspace.values, call, x.dtype, x.rows, x.cols);
  call.backend.centre({x, sums, matrix_in(*mean, call, DType::f32, 1, x.cols), values});
  return as_const(values);
}

/// y += 1 (W mean)^T.
void add_product_of_mean(const LinearCall& call, const LinearForward& op) {
  const MutableMatrixView row = matrix_in(op.workspace.row, call, DType::f32, 1, op.y.cols);
  call.backend.gemm(GemmOperand(row_in(*op.mean)), GemmOperand(op.weight_values), row);
  call.backend.add_row({as_const(row), op.y});
}

/// x^T [in, tokens]. The workspace's first operand is free by now.
GemmOperand wgrad_input(const LinearCall& call, const LinearBackward& op) {
  const LinearSaved& saved = op.saved;
  if (saved.codes == nullptr) return GemmOperand(saved.x).transposed();
  if (call.precision.wgrad_requantizes()) {
    const MatrixView x = decoded(call, *saved.codes, op.dy.dtype, op.workspace.values);
    quantize(call, x, nullptr,
             {Operand::wgrad_x, call.spec(Operand::wgrad_x), Form::operand, &op.workspace.first});
    return op.workspace.first;
  }
  const GemmOperand codes(*saved.codes);
  return call.precision.wgrad_reads_fprop() ? codes.transposed() : codes;
}

}  // namespace

std::optional<QuantSpec> LinearCall::spec(Operand operand) const {
  std::optional<QuantSpec> spec = precision[operand];
  if (spec && precision.signs == SignSource::per_step) spec->signs = step_signs(key, operand);
  if (has_fresh_signs(precision, operand)) spec->signs = fresh_signs(key, operand);
  return spec;
}

bool weight_depends_on_step(const LinearPrecision& precision, Operand operand) {
  const std::optional<QuantSpec>& spec = precision[operand];
  return spec && (precision.signs == SignSource::per_step || spec->is_random());
}

GemmOperand linear_weight(const LinearCall& call, Operand operand, const MatrixView& weight, DType storage,
                          WeightForm& form, Form codes) {
  if (const std::optional<QuantSpec> spec = call.spec(operand)) {
    LinearCall of_step = call;
    if (!has_fresh_signs(call.precision, operand)) of_step.key = call.key.of_step();
    of_step.key_in_memory = nullptr;
    form.dense = {};
    quantize(of_step, weight, nullptr, {operand, spec, codes, &form.codes});
  } else {
    form.codes = {};
    if (weight.dtype == storage) form.dense = {};
    if (weight.dtype != storage) {
      const bool fits = form.dense.rows() == weight.rows && form.dense.cols() == weight.cols &&
                        form.dense.dtype() == storage;
      if (!fits) form.dense = call.backend.make_tensor(storage, weight.rows, weight.cols);
      call.backend.cast({weight, form.dense.view()});
    }
  }
  return weight_operand(operand, weight, form);
}

MatrixView linear_weight_values(const LinearCall& call, const WeightForm& fprop, DType storage,
                                LinearWorkspace& workspace) {
  return decoded(call, fprop.codes, storage, workspace.values);
}

GemmOperand weight_operand(Operand operand, const MatrixView& weight, const WeightForm& form) {
  if (form.codes.rows > 0) return form.codes;
  const GemmOperand dense = form.dense.size() > 0 ? form.dense.const_view() : weight;
  return operand == Operand::dgrad_w ? dense.transposed() : dense;
}

LinearSaved linear_forward(const LinearCall& call, const LinearForward& op) {
  const bool saves = op.saved_codes != nullptr;
  TETRAD_CHECK(call.stack.empty() || (!saves && call.precision.can_stack() && call.backend.has_stacks()),
               "linear: several tensors cannot be multiplied in one matrix here");
  Wanted operand{Operand::fprop_x, call.spec(Operand::fprop_x), Form::operand, &op.workspace.first};
  Wanted saved{Operand::wgrad_x, std::nullopt, Form::packed, op.saved_codes};
  if (saves && call.precision.saved_operand() == Operand::fprop_x) {
    operand.form = Form::packed;
    operand.out = op.saved_codes;
  } else if (saves) {
    saved.spec = call.spec(Operand::wgrad_x);
  }
  const bool centres = call.precision.centre && (operand.spec || saved.spec);
  const MatrixView x = centres ? centred(call, op.x, op.workspace, op.mean) : op.x;
  quantize(call, x, centres ? nullptr : op.amax, operand, saved);
  call.backend.gemm(operand.spec ? GemmOperand(*operand.out) : GemmOperand(op.x), op.weight, op.y);
  if (centres && operand.spec) add_product_of_mean(call, op);
  if (!saves) return {};
  return saved_of(operand.out == op.saved_codes ? operand : saved, op.x, centres ? op.mean : nullptr);
}

LinearSaved linear_save(const LinearCall& call, const LinearSave& op) {
  const Operand operand = call.precision.saved_operand();
  const Wanted saved{operand, call.spec(operand), Form::packed, &op.codes};
  const bool centres = call.precision.centre && saved.spec;
  const MatrixView x = centres ? centred(call, op.x, op.workspace, op.mean) : op.x;
  quantize(call, x, centres ? nullptr : op.amax, saved);
  return saved_of(saved, op.x, centres ? op.mean : nullptr);
}

void linear_backward(const LinearCall& call, const LinearBackward& op) {
  TETRAD_CHECK(!op.dx || op.weight, "linear: dx needs the weight");
  TETRAD_CHECK(!op.dw || op.saved.codes != nullptr || op.saved.x.data != nullptr,
               "linear: dW needs what the forward pass saved");
  Wanted for_dgrad{Operand::dgrad_dy, std::nullopt, Form::operand, &op.workspace.first};
  Wanted for_wgrad{Operand::wgrad_dy, std::nullopt, Form::operand, &op.workspace.second};
  if (op.dx) for_dgrad.spec = call.spec(Operand::dgrad_dy);
  if (op.dw) for_wgrad.spec = call.spec(Operand::wgrad_dy);
  quantize(call, op.dy, op.amax, for_dgrad, for_wgrad);
  if (op.dx)
    call.backend.gemm(for_dgrad.spec ? GemmOperand(*for_dgrad.out) : GemmOperand(op.dy), *op.weight, *op.dx);
  if (!op.dw) return;
  call.backend.gemm(for_wgrad.spec ? GemmOperand(*for_wgrad.out) : GemmOperand(op.dy).transposed(),
                    wgrad_input(call, op), *op.dw, op.accumulate);
  if (op.saved.mean != nullptr)  // dW += (dy^T 1) mean^T
    call.backend.add_outer({sums_of_columns(call, op.dy, op.workspace), row_in(*op.saved.mean), *op.dw});
}

}  // namespace tetrad
