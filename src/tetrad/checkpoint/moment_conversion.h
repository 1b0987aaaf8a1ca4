// SPDX-License-Identifier: Apache-2.0
#pragma once
// Moments of a checkpoint that are stored otherwise than the run that goes on from it has them.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tetrad/core/buffer.h"
#include "tetrad/core/dtype.h"
#include "tetrad/core/threads.h"
#include "tetrad/numerics/adamw.h"

namespace tetrad {

enum class Moment : std::uint8_t { first, second };

/// The elements of one moment of one parameter: F32 rounded to BF16 with these random bits, or BF16 widened
/// to F32.
class MomentConversion {
 public:
  MomentConversion(Threads& threads, Moment which, const MomentRounding& rounding)
      : threads_(threads), which_(which), rounding_(rounding) {}

  static bool knows(DType from, DType to) {
    return (from == DType::f32 && to == DType::bf16) || (from == DType::bf16 && to == DType::f32);
  }

  /// `piece` holds elements of the type `from`, the first of which is number `first`, a multiple of four. The
  /// result is valid until the next call.
  std::span<const std::byte> convert(std::span<const std::byte> piece, DType from, std::int64_t first);

 private:
  void round(std::span<const std::byte> piece, std::int64_t first);
  void widen(std::span<const std::byte> piece);

  Threads& threads_;
  Moment which_;
  MomentRounding rounding_;
  Buffer result_;
};

}  // namespace tetrad
