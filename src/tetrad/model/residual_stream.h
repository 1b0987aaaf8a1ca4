// SPDX-License-Identifier: Apache-2.0
#pragma once
// The residual stream from forward to backward: x[0], the input of the first block, to x[n], the output of
// the last. All of it is on the device, or most of it on the host; without a backward pass, only what the
// block at work reads and writes is anywhere.
//
// On the host: the device has a few buffers, which the stream takes in turns. In the forward pass x[i] goes
// to the host while blocks compute; in the backward pass it comes back while those after it do. What the last
// blocks read is still there.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tetrad/core/tensor.h"
#include "tetrad/ops/backend.h"

namespace tetrad {

class ResidualStream {
 public:
  enum class Kept : std::uint8_t { on_device, on_host, nowhere };

  ResidualStream(Backend& backend, std::int64_t blocks, DType storage, std::int64_t tokens,
                 std::int64_t hidden, Kept kept);

  /// The first `rows` of x[i], for the block that writes it.
  MutableMatrixView begin(std::size_t i, std::int64_t rows);
  /// x[i] was written, and is wanted in the backward pass.
  void save(std::size_t i);
  /// x[i], in the backward pass: from x[n] down to x[0].
  MatrixView restore(std::size_t i);
  /// x[i] is not needed any more: its memory is for the next that comes back.
  void release(std::size_t i);

  /// Bytes on the device.
  std::size_t bytes() const;
  std::size_t bytes_on_host() const { return host_.size(); }

  /// How many of x[0] … x[blocks] have a buffer on the device.
  static constexpr std::int64_t buffers(std::int64_t blocks, bool on_host) {
    return on_host ? std::min<std::int64_t>(kCopyLanes, blocks + 1) : blocks + 1;
  }

 private:
  /// The buffer, and the lane in which it is copied.
  std::size_t place(std::size_t i) const { return i % buffers_.size(); }
  /// Whether the buffer of x[i] is another's when it is read again.
  bool is_on_host(std::size_t i) const { return i + buffers_.size() <= last_; }
  std::span<std::byte> host(std::size_t i);

  Backend& backend_;
  std::size_t last_;  //!< n
  std::vector<Tensor> buffers_;
  Buffer host_;
};

}  // namespace tetrad
