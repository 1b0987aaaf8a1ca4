#pragma once
// What the gated norm refuses, apart from its kernels.

#include <cstdint>

namespace tetrad::cuda {

/// Channels of a group; throws Error where the groups do not divide the width.
std::int64_t gated_norm_group(std::int64_t width, std::int64_t groups);

}  // namespace tetrad::cuda
