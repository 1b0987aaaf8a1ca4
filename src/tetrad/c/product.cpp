// SPDX-License-Identifier: Apache-2.0
#include "tetrad/c/boundary.h"

using namespace tetrad;  // NOLINT(google-build-using-namespace): everything here is ours

namespace {

/// A caller's operand, and what it refers to.
class Factor {
 public:
  Factor(const tetrad_context& context, const tetrad_operand* operand, const char* name) {
    const tetrad_operand known = c::read_struct(operand, name);
    if (known.values.data != nullptr) {
      values_ = c::input_matrix(known.values, name);
      return;
    }
    const tetrad_quantized memory = c::read_struct(known.quantized, name);
    tensor_ = c::borrow_tensor(context, memory, c::quant_spec(known.quantizer, name), known.rows, known.cols);
    if (!context.on_device) tensor_.amax = *memory.amax;
    is_quantized_ = true;
  }
  GemmOperand get() const { return is_quantized_ ? GemmOperand(tensor_) : GemmOperand(values_); }
  /// Of the transform that its values are left in.
  std::pair<int, SignMask> transform() const {
    const bool transformed = is_quantized_ && tensor_.spec.hadamard > 0;
    return transformed ? std::pair(tensor_.spec.hadamard, tensor_.spec.signs) : std::pair(0, kNoSigns);
  }

 private:
  bool is_quantized_ = false;
  MatrixView values_;
  QuantizedTensor tensor_;
};

}  // namespace

tetrad_status tetrad_matmul(tetrad_context* context, const tetrad_operand* a, const tetrad_operand* b,
                            const tetrad_matrix* out) {
  return c::guarded([&] {
    tetrad_context& where = c::required(context, "context");
    const Factor left(where, a, "a");
    const Factor right(where, b, "b");
    TETRAD_CHECK(left.transform() == right.transform(),
                 "a and b are multiplied, so they need the same Hadamard transform");
    where.backend->gemm(left.get(), right.get(), c::output_matrix(c::required(out, "out"), "out"),
                        Accumulate::no);
  });
}
