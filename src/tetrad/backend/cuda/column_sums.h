#pragma once
// The second stage of sums over tokens: what each block found, added in the order of the blocks.

#include "tetrad/backend/cuda/device.h"

namespace tetrad::cuda {

/// sums[cols] += the sum of partial's rows; partial is [rows, cols].
void add_column_sums(Device& device, const float* partial, std::int64_t rows, std::int64_t cols, float* sums);

}  // namespace tetrad::cuda
