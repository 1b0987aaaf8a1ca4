// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that blocks share, one buffer per purpose: what is used for a moment, and what is computed again for
// the backward pass of one block after another.

#include <array>
#include <cstdint>

#include "tetrad/core/tensor.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/linear.h"

namespace tetrad {

/// The two linear layers of a block: one reads the norm, the other writes to the residual stream.
enum class Place : std::uint8_t { first, second };

class Scratch {
 public:
  enum Slot : std::uint8_t {
    first_input,          //!< what a block's first linear layer reads, and, once it has …
    mixed = first_input,  //!< … the output of the second; and what the head reads
    second_input,
    wide,       //!< output of the first linear layer
    heads,      //!< attention's normed and rotated queries and keys
    convolved,  //!< Mamba-2's, like the next two
    scanned,
    states,
    sums,             //!< attention's log-sum-exp
    gradient_wide,    //!< gradient of a block's widest activation
    gradient_middle,  //!< gradient of the input of the second linear layer
    gradient_middle_2,
    gradient_narrow,  //!< gradient of a norm's output
    slots,
  };

  explicit Scratch(Backend& backend) : backend_(backend) {}

  /// Valid until the same slot is asked for again.
  MutableMatrixView get(Slot slot, DType dtype, std::int64_t rows, std::int64_t cols) {
    const auto bytes = static_cast<std::size_t>(rows * cols * bits_of(dtype) / 8);
    Buffer& buffer = buffers_[slot];
    if (buffer.size() < bytes) {
      buffer = {};  // first: both need not fit
      buffer = backend_.allocate(bytes);
    }
    return {buffer.data(), dtype, rows, cols, cols, 1};
  }

  /// For the operands of the products of one call of a linear layer.
  LinearWorkspace& operands() { return operands_; }
  /// The codes of a linear layer's input, where blocks do not keep them.
  QuantizedTensor& packed_input(Place place) { return packed_inputs_[static_cast<std::size_t>(place)]; }
  /// The mean that those are without, likewise.
  Buffer& mean(Place place) { return means_[static_cast<std::size_t>(place)]; }

  std::size_t bytes() const {
    std::size_t total = 0;
    const auto add = [&](const QuantizedTensor& tensor) {
      total += tensor.codes.capacity() + tensor.scales.capacity();
    };
    add(operands_.first);
    add(operands_.second);
    for (const Buffer* buffer : {&operands_.values, &operands_.sums, &operands_.row})
      total += buffer->capacity();
    for (const QuantizedTensor& tensor : packed_inputs_) add(tensor);
    for (const Buffer& buffer : means_) total += buffer.capacity();
    for (const Buffer& buffer : buffers_) total += buffer.size();
    return total;
  }

 private:
  Backend& backend_;
  std::array<Buffer, slots> buffers_;
  LinearWorkspace operands_;
  std::array<QuantizedTensor, 2> packed_inputs_;
  std::array<Buffer, 2> means_;
};

/// An activation that the backward pass reads: memory of its block, which keeps it, or a slot that all blocks
/// share and compute again.
class Saved {
 public:
  Saved(Backend& backend, Scratch& scratch, Scratch::Slot slot, bool kept, DType dtype, std::int64_t rows,
        std::int64_t cols)
      : scratch_(scratch), slot_(slot), dtype_(dtype), rows_(rows), cols_(cols) {
    if (kept) own_ = backend.make_tensor(dtype, rows, cols);
  }

  MutableMatrixView view() {
    return own_.size() > 0 ? own_.view() : scratch_.get(slot_, dtype_, rows_, cols_);
  }
  /// The first `row_count` rows.
  MutableMatrixView view(std::int64_t row_count) { return rows(view(), 0, row_count); }
  float* f32() { return static_cast<float*>(view().data); }
  /// Bytes of its own memory.
  std::size_t bytes() const { return own_.bytes().size(); }

 private:
  Scratch& scratch_;
  Scratch::Slot slot_;
  DType dtype_;
  std::int64_t rows_, cols_;
  Tensor own_;
};

}  // namespace tetrad
