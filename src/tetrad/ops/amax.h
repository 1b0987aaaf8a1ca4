// SPDX-License-Identifier: Apache-2.0
#pragma once
// The amax of a matrix: reported by the operation that writes it to the quantizers that read it next, or
// found for many matrices at once.

#include <cstdint>
#include <span>

namespace tetrad {

/// The largest magnitudes of a matrix, so that nobody has to read it only to find them. A backend that does
/// not report them leaves `known` false; a quantizer may ignore them.
struct AmaxReport {
  /// Two, in the backend's memory: of the matrix as it is; and of what the 16-point transform with the fixed
  /// signs makes of each of its columns, 16 rows at a time. NaN or infinity if a value is not finite.
  float* values = nullptr;
  bool known = false;
};

/// The largest magnitude of each tensor.
struct Amaxes {
  struct Tensor {
    const float* values = nullptr;
    std::int64_t size = 0;
  };
  std::span<const Tensor> tensors;  //!< the list is the program's
  /// One for each, in the backend's memory: the bits of |x|, which compare as magnitudes do; infinity and NaN
  /// are above all others. 0 of an empty tensor.
  std::uint32_t* bits = nullptr;
};

}  // namespace tetrad
