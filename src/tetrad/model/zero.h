// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks share instead of each having it whole: parallel.zero, as ZeRO numbers it.

#include <cstdint>

namespace tetrad {

// Each is shared from this number on.
inline constexpr std::int64_t kSharesWeights = 1;  //!< in f32, and their moments
inline constexpr std::int64_t kSharesGradients =
    2;                                           //!< of a rank whole only while the backward pass is there
inline constexpr std::int64_t kSharesForms = 3;  //!< what products read of the weights

}  // namespace tetrad
