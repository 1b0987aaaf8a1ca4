// SPDX-License-Identifier: Apache-2.0
#pragma once
// The amax of a matrix, reported by the operation that writes it to the quantizers that read it next.

namespace tetrad {

/// The largest magnitudes of a matrix, so that nobody has to read it only to find them. A backend that does
/// not report them leaves `known` false; a quantizer may ignore them.
struct AmaxReport {
  /// Two, in the backend's memory: of the matrix as it is; and of what the 16-point transform with the fixed
  /// signs makes of each of its columns, 16 rows at a time. NaN or infinity if a value is not finite.
  float* values = nullptr;
  bool known = false;
};

}  // namespace tetrad
