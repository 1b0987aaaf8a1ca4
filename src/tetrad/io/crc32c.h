// SPDX-License-Identifier: Apache-2.0
#pragma once
// CRC-32C (Castagnoli), as the records of TensorBoard's event files carry it.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tetrad {

std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace tetrad
