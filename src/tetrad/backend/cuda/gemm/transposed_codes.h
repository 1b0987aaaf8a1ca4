// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codes with their two dimensions exchanged, for matrix units that want the reduction dimension last.

#include <cstdint>

#include "tetrad/backend/cuda/common/device.h"

namespace tetrad::cuda {

/// [rows, cols] -> [cols, rows], both multiples of 8: codes of a byte each, or pairs that stay pairs.
void transpose_bytes(Device& device, const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
                     std::uint8_t* out);

/// Two codes in a byte, [rows, cols / 2] -> [cols, rows / 2]; rows and cols are multiples of 16.
void transpose_packed_codes(Device& device, const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
                            std::uint8_t* out);

}  // namespace tetrad::cuda
