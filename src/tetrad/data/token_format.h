// SPDX-License-Identifier: Apache-2.0
#pragma once
// Token files of others, which are one file: where their tokens are.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tetrad/core/dtype.h"

namespace tetrad {

enum class TokenFormat {
  megatron,  //!< NAME.bin and NAME.idx
  llmc,      //!< NAME.bin: 256 numbers of 32 bits, among them the number of tokens, then the tokens
  raw,       //!< NAME.bin: 16 bits per token and nothing else, as nanoGPT writes them
};

std::string_view name_of(TokenFormat format);

struct TokenLayout {
  TokenFormat format = TokenFormat::megatron;
  DType dtype = DType::u16;  //!< u16 or i32
  std::size_t begin = 0;     //!< where the tokens begin, in bytes; a multiple of 4
  std::int64_t tokens = 0;
};

/// So many first bytes of a file, or all of a shorter one, tell its format.
inline constexpr std::size_t kTokenHeadBytes = 8192;

/// What the header of llm.c says (version 1: 16 bits per token, version 7: 32); nothing if there is none.
/// `head` is the beginning of a file of `size` bytes. Throws Error (bad input) that begins with `where` if
/// the header does not fit the file.
std::optional<TokenLayout> llmc_layout(std::span<const std::byte> head, std::uint64_t size,
                                       std::string_view where);

/// A file without any header can only be wrong by its size or by looking like tokens of 32 bits: Error (bad
/// input) then.
TokenLayout raw_layout(std::span<const std::byte> head, std::uint64_t size, std::string_view where);

}  // namespace tetrad
