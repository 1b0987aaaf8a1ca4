// SPDX-License-Identifier: Apache-2.0
#include "tetrad/c/boundary.h"
#include "tetrad/core/checked.h"

using namespace tetrad;  // NOLINT(google-build-using-namespace): everything here is ours

namespace {

/// A transform cancels only if both operands have the same one.
void check_pair(const LinearPrecision& precision, Operand a, Operand b) {
  const auto transform = [&](Operand operand) {
    const std::optional<QuantSpec>& spec = precision[operand];
    return spec ? std::pair(spec->hadamard, spec->hadamard == 0 ? kNoSigns : spec->signs)
                : std::pair(0, kNoSigns);
  };
  TETRAD_CHECK(transform(a) == transform(b),
               "{} and {} are multiplied, so they need the same Hadamard transform", name_of(a), name_of(b));
}

/// How the caller's memory for x, as wgrad reads it, is divided: codes, scales, amax, mean.
struct SavedLayout {
  static constexpr std::int64_t kAlignment = 16;

  std::int64_t rows = 0;  //!< of the codes: those of fprop lie as x does, those of wgrad transposed
  std::int64_t cols = 0;
  std::int64_t codes = 0;
  std::int64_t scales = 0;
  std::int64_t scales_at = 0;
  std::int64_t amax_at = 0;
  std::int64_t mean_at = 0;
  std::int64_t mean = 0;
  std::int64_t bytes = 0;

  SavedLayout(const LinearPrecision& precision, std::int64_t tokens, std::int64_t in_features) {
    const std::optional<QuantSpec>& spec = precision.saved_spec();
    if (!spec) return;
    TETRAD_CHECK(tokens >= 0 && in_features >= 0, "x: {} x {} is no shape", tokens, in_features);
    const bool as_fprop = precision.saved_operand() == Operand::fprop_x;
    rows = as_fprop ? tokens : in_features;
    cols = as_fprop ? in_features : tokens;
    validate(*spec, rows, cols, as_fprop ? "x" : "x for wgrad");
    const auto aligned = [](std::int64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; };
    const PackedSize size = packed_size(*spec, rows, cols);
    codes = size.codes;
    scales = size.scales;
    scales_at = aligned(codes);
    amax_at = scales_at + aligned(scales);
    constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
    mean_at = amax_at + kFloat;
    if (precision.centres()) mean = in_features * kFloat;
    bytes = mean_at + mean;  // nothing behind it, which nobody would write
  }
};

/// The caller's memory as the tensor that forward writes and backward reads.
struct SavedMemory {
  QuantizedTensor tensor;
  Buffer mean;
  float* amax = nullptr;

  SavedMemory(const tetrad_context& context, void* memory, std::size_t bytes, const SavedLayout& layout) {
    TETRAD_CHECK(bytes == static_cast<std::size_t>(layout.bytes),
                 "saved: {} bytes instead of {} (tetrad_linear_saved_bytes)", bytes, layout.bytes);
    TETRAD_CHECK(reinterpret_cast<std::uintptr_t>(memory) % SavedLayout::kAlignment == 0,
                 "saved is not aligned to {} bytes", SavedLayout::kAlignment);
    auto* begin = static_cast<std::byte*>(memory);
    tensor.codes = c::borrow(begin, static_cast<std::size_t>(layout.codes));
    tensor.scales = c::borrow(begin + layout.scales_at, static_cast<std::size_t>(layout.scales));
    mean = c::borrow(begin + layout.mean_at, static_cast<std::size_t>(layout.mean));
    amax = reinterpret_cast<float*>(begin + layout.amax_at);
    if (context.on_device) tensor.device_amax = c::borrow(amax, sizeof(float));
  }
};

LinearCall call_of(const tetrad_context& context, const tetrad_precision* given, const tetrad_linear_key& key,
                   const tetrad_random_key* in_memory) {
  const LinearPrecision& precision = c::required(given, "precision").precision;
  const RandomKey random = c::key_by_value(context, in_memory, {key.seed, key.step, key.microbatch});
  LinearCall call{*context.backend, precision, {random.seed, random.step, random.microbatch, key.layer}};
  call.key_in_memory = c::key_on_device(context, in_memory);
  const auto draws_weight = [&](Operand operand) { return weight_depends_on_step(precision, operand); };
  TETRAD_CHECK(
      call.key_in_memory == nullptr || (precision.signs == SignSource::spec &&
                                        !draws_weight(Operand::fprop_w) && !draws_weight(Operand::dgrad_w)),
      "random_key: a precision that draws signs, or codes of the weight, needs its key by value on a "
      "device");
  return call;
}

void check_shape(const char* name, std::int64_t rows, std::int64_t cols, std::int64_t expected_rows,
                 std::int64_t expected_cols) {
  TETRAD_CHECK(rows == expected_rows && cols == expected_cols, "{} is {} x {}, which must be {} x {}", name,
               rows, cols, expected_rows, expected_cols);
}

/// What wgrad reads of x: the caller's codes, codes made again, or x itself. `memory` holds what it refers
/// to.
LinearSaved saved_for_wgrad(tetrad_context& context, const LinearCall& call,
                            const tetrad_linear_backward_args& args, std::int64_t in_features,
                            std::optional<SavedMemory>& memory) {
  const SavedLayout layout(call.precision, args.dy.rows, in_features);
  if (args.saved == nullptr || layout.bytes == 0) {
    const MatrixView x = c::input_matrix(args.x, "x");
    check_shape("x", x.rows, x.cols, args.dy.rows, in_features);
    return linear_save(call, {x, context.input, context.workspace, nullptr, &context.mean});
  }
  // Only read, though the view of it is writable.
  memory.emplace(context, const_cast<void*>(args.saved), args.saved_bytes, layout);  // NOLINT
  QuantizedTensor& codes = memory->tensor;
  codes.spec = call.spec(call.precision.saved_operand()).value();
  codes.rows = layout.rows;
  codes.cols = layout.cols;
  codes.order = context.backend->preferred_order(codes.spec);
  if (!context.on_device) codes.amax = *memory->amax;
  return {{}, &codes, layout.mean > 0 ? &memory->mean : nullptr};
}

GemmOperand dgrad_weight(tetrad_context& context, const LinearCall& call, const MatrixView& w,
                         DType storage) {
  if (call.precision.weight_form_shared())
    return linear_weight(call, Operand::fprop_w, w, storage, context.weight).transposed();
  if (!call.precision.dgrad_requantizes())
    return linear_weight(call, Operand::dgrad_w, w, storage, context.dgrad_weight);
  linear_weight(call, Operand::fprop_w, w, storage, context.weight);
  const MatrixView values = linear_weight_values(call, context.weight, storage, context.workspace);
  return linear_weight(call, Operand::dgrad_w, values, storage, context.dgrad_weight);
}

}  // namespace

tetrad_status tetrad_precision_from_operands(const tetrad_quantizer* const* operands,
                                             tetrad_precision** out) {
  return c::guarded([&] {
    tetrad_precision*& result = c::required(out, "out");
    c::required(operands, "operands");
    LinearPrecision precision;
    for (int i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      if (operands[i] == nullptr) continue;
      precision[operand] = c::quant_spec(operands[i], std::string(name_of(operand)).c_str());
      precision[operand]->axis = axis_of(operand);
    }
    check_pair(precision, Operand::fprop_x, Operand::fprop_w);
    check_pair(precision, Operand::dgrad_dy, Operand::dgrad_w);
    check_pair(precision, Operand::wgrad_dy, Operand::wgrad_x);
    result = new tetrad_precision{precision};
  });
}

void tetrad_precision_free(tetrad_precision* precision) { delete precision; }

tetrad_status tetrad_linear_saved_bytes(const tetrad_precision* precision, int64_t tokens,
                                        int64_t in_features, size_t* bytes) {
  return c::guarded([&] {
    const SavedLayout layout(c::required(precision, "precision").precision, tokens, in_features);
    c::required(bytes, "bytes") = static_cast<std::size_t>(layout.bytes);
  });
}

tetrad_status tetrad_linear_forward(tetrad_context* context, const tetrad_linear_forward_args* args) {
  return c::guarded([&] {
    tetrad_context& where = c::required(context, "context");
    const tetrad_linear_forward_args known = c::read_struct(args, "args");
    const LinearCall call = call_of(where, known.precision, known.key, known.random_key);
    const MatrixView x = c::input_matrix(known.x, "x");
    const MatrixView w = c::input_matrix(known.w, "w");
    const MutableMatrixView y = c::output_matrix(known.y, "y");
    check_shape("w", w.rows, w.cols, w.rows, x.cols);
    check_shape("y", y.rows, y.cols, x.rows, w.rows);

    LinearForward op{x, linear_weight(call, Operand::fprop_w, w, x.dtype, where.weight), y, where.workspace};
    op.mean = &where.mean;
    op.weight_values = w;
    std::optional<SavedMemory> saved;
    if (known.saved != nullptr) {
      const SavedLayout layout(call.precision, x.rows, x.cols);
      if (layout.bytes > 0) saved.emplace(where, known.saved, known.saved_bytes, layout);
      if (layout.mean > 0) op.mean = &saved->mean;
    }
    if (saved) op.saved_codes = &saved->tensor;
    linear_forward(call, op);
    if (saved && !where.on_device) *saved->amax = saved->tensor.amax;
  });
}

tetrad_status tetrad_linear_backward(tetrad_context* context, const tetrad_linear_backward_args* args) {
  return c::guarded([&] {
    tetrad_context& where = c::required(context, "context");
    const tetrad_linear_backward_args known = c::read_struct(args, "args");
    const LinearCall call = call_of(where, known.precision, known.key, known.random_key);
    const MatrixView dy = c::input_matrix(known.dy, "dy");
    std::optional<SavedMemory> memory;
    LinearBackward op{dy, {}, where.workspace};
    if (known.dx.data != nullptr) {
      const MatrixView w = c::input_matrix(known.w, "w");
      op.dx = c::output_matrix(known.dx, "dx");
      check_shape("dx", op.dx->rows, op.dx->cols, dy.rows, w.cols);
      check_shape("w", w.rows, w.cols, dy.cols, w.cols);
      op.weight = dgrad_weight(where, call, w, dy.dtype);
    }
    if (known.dw.data != nullptr) {
      op.dw = c::output_matrix(known.dw, "dw");
      op.accumulate = known.accumulate != 0 ? Accumulate::yes : Accumulate::no;
      check_shape("dw", op.dw->rows, op.dw->cols, dy.cols, op.dw->cols);
      op.saved = saved_for_wgrad(where, call, known, op.dw->cols, memory);
    }
    linear_backward(call, op);
  });
}
