// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/moment_conversion.h"

#include <algorithm>
#include <cstring>

#include "tetrad/core/checked.h"

namespace tetrad {
namespace {

template <typename T>
T element(std::span<const std::byte> bytes, std::int64_t index) {
  T value;  // the format promises no alignment
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

/// body(first, last) for parts of [0, count) that begin with a group of random bits.
template <typename Body>
void in_parts(Threads& threads, std::int64_t count, const Body& body) {
  constexpr std::int64_t kElements = 1 << 16;
  threads.parallel_for(ceil_div(count, kElements), [&](std::int64_t part) {
    body(part * kElements, std::min(count, (part + 1) * kElements));
  });
}

}  // namespace

std::span<const std::byte> MomentConversion::convert(std::span<const std::byte> piece, DType from,
                                                     std::int64_t first) {
  if (from == DType::f32)
    round(piece, first);
  else
    widen(piece);
  return result_.span<std::byte>();
}

void MomentConversion::round(std::span<const std::byte> piece, std::int64_t first) {
  const auto count = static_cast<std::int64_t>(piece.size() / sizeof(float));
  result_ = Buffer(static_cast<std::size_t>(count) * sizeof(Bf16));
  in_parts(threads_, count, [&](std::int64_t begin, std::int64_t end) {
    PhiloxWords words = {};
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t in_group = i % MomentRounding::kGroup;
      if (in_group == 0) words = rounding_.words(first + i);
      const std::uint32_t word = words[static_cast<std::size_t>(in_group)];
      const float value = element<float>(piece, i);
      result_.as<Bf16>()[i] = which_ == Moment::first ? MomentRounding::round_first(value, word)
                                                      : MomentRounding::round_second(value, word);
    }
  });
}

void MomentConversion::widen(std::span<const std::byte> piece) {
  const auto count = static_cast<std::int64_t>(piece.size() / sizeof(Bf16));
  result_ = Buffer(static_cast<std::size_t>(count) * sizeof(float));
  in_parts(threads_, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) result_.as<float>()[i] = element<Bf16>(piece, i).to_f32();
  });
}

}  // namespace tetrad
