// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far values are from a reference: what measurements of errors need of tensors that are too large to be
// read back.

#include <cstdint>

namespace tetrad {

/// One f32 tensor beside its reference. The deviation of an element is d = value - reference, rounded to f32.
struct DeviationTensor {
  const float* value = nullptr;
  const float* reference = nullptr;  //!< null: zeros
  float* sum = nullptr;              //!< d is added to it in f32, unless null; neither of the others
  std::int64_t size = 0;
};

/// Of one tensor, in f64 and in a fixed order; infinity or NaN if an element is not finite.
struct DeviationSums {
  double reference = 0;  //!< Σ reference²
  double product = 0;    //!< Σ reference · d
  double deviation = 0;  //!< Σ d²

  /// Another part of the same vector.
  void add(const DeviationSums& other) {
    reference += other.reference;
    product += other.product;
    deviation += other.deviation;
  }
  friend bool operator==(const DeviationSums&, const DeviationSums&) = default;
};

}  // namespace tetrad
