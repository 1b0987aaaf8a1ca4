// SPDX-License-Identifier: Apache-2.0
#pragma once
// NAME.idx of a Megatron token file: which parts of NAME.bin are sequences, and which sequences are a
// document. For token_file.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tetrad/core/dtype.h"

namespace tetrad {

/// What the index says about the tokens.
struct MegatronIndex {
  DType dtype = DType::u16;    //!< u16 or i32
  std::int64_t tokens = 0;     //!< in all sequences
  std::int64_t documents = 0;  //!< also those without sequences
  friend bool operator==(const MegatronIndex&, const MegatronIndex&) = default;
};

/// Checks every number of NAME.idx, and that the sequences fill the `bin_bytes` of NAME.bin. Throws Error
/// (bad input).
MegatronIndex check_megatron_index(std::span<const std::byte> index, std::uint64_t bin_bytes,
                                   const std::string& name);

/// Where each document ends, in tokens; those without tokens are left out. The index has been checked.
std::vector<std::int64_t> megatron_document_ends(std::span<const std::byte> index);

/// NAME.idx for sequences of these lengths, one behind the other, and documents that end behind so many of
/// them.
std::vector<std::byte> megatron_index_bytes(DType dtype, std::span<const std::int32_t> lengths,
                                            std::span<const std::int64_t> document_ends);

}  // namespace tetrad
