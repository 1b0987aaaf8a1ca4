#pragma once
// Memory that is used for a moment and shared by all blocks, one buffer per purpose.

#include <array>
#include <cstdint>

#include "tetrad/core/tensor.h"
#include "tetrad/ops/backend.h"

namespace tetrad {

class Scratch {
 public:
  enum Slot : std::uint8_t {
    linear_input,
    linear_output,
    gradient_wide,    //!< of a block's widest activation
    gradient_middle,  //!< of what stands between
    gradient_middle_2,
    gradient_narrow,  //!< of a norm's output
    slots,
  };

  explicit Scratch(Backend& backend) : backend_(backend) {}

  /// Valid until the same slot is asked for again.
  MutableMatrixView get(Slot slot, DType dtype, std::int64_t rows, std::int64_t cols) {
    const auto bytes = static_cast<std::size_t>(rows * cols * bits_of(dtype) / 8);
    Buffer& buffer = buffers_[slot];
    if (buffer.size() < bytes) buffer = backend_.allocate(bytes);
    return {buffer.data(), dtype, rows, cols, cols, 1};
  }

  /// For the operands of the products of one call.
  QuantizedTensor& operand(std::size_t index) { return operands_[index]; }

  std::size_t bytes() const {
    std::size_t total = 0;
    for (const QuantizedTensor& operand : operands_) total += operand.codes.size() + operand.scales.size();
    for (const Buffer& buffer : buffers_) total += buffer.size();
    return total;
  }

 private:
  Backend& backend_;
  std::array<Buffer, slots> buffers_;
  std::array<QuantizedTensor, 2> operands_;
};

}  // namespace tetrad
