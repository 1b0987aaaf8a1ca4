// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tetrad {
namespace {

using State = std::array<std::uint32_t, 8>;
constexpr std::size_t kBlock = 64;

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
alignas(16) constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#ifdef __x86_64__

/// Whether the processor has the SHA instructions (and SSE4.1, which they come with).
bool has_sha_instructions() {
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int c = 0;
  unsigned int d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0 &&
         static_cast<int>(__builtin_cpu_supports("sse4.1")) != 0;
}

// The instructions keep the eight state words as (a, b, e, f) and (c, d, g, h), highest lane first, and do
// two rounds at a time; four registers hold the last sixteen words of the message schedule.
[[gnu::target("sha,sse4.1")]] void compress_with_instructions(State& state,
                                                              std::span<const std::byte> blocks) {
  const auto load = [](const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); };
  const __m128i big_endian = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  using Lanes [[gnu::vector_size(16)]] = std::uint32_t;
  const auto add = [](__m128i a, __m128i b) {
    return reinterpret_cast<__m128i>(reinterpret_cast<Lanes>(a) + reinterpret_cast<Lanes>(b));
  };
  const auto w = [](std::uint32_t x) { return static_cast<int>(x); };
  __m128i abef = _mm_set_epi32(w(state[0]), w(state[1]), w(state[4]), w(state[5]));
  __m128i cdgh = _mm_set_epi32(w(state[2]), w(state[3]), w(state[6]), w(state[7]));
#ifdef __AVX__
  // These instructions exist in the old encoding only. While the upper halves of registers are in use (the
  // compiler may have loaded the state through them) each costs some processors a change of state: without
  // this line a hash takes at least 30 times as long on a Sapphire Rapids.
  _mm256_zeroupper();
#endif

  for (; !blocks.empty(); blocks = blocks.subspan(kBlock)) {
    const __m128i old_abef = abef;
    const __m128i old_cdgh = cdgh;
    __m128i words[4];
    for (std::size_t i = 0; i < 4; ++i) words[i] = _mm_shuffle_epi8(load(blocks.data() + 16 * i), big_endian);

#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      const __m128i last = words[(i + 3) % 4];
      __m128i& current = words[i % 4];
      if (i >= 4) {
        // current[t] = s1(current[t-2]) + current[t-7] + s0(current[t-15]) + current[t-16]
        current = _mm_sha256msg1_epu32(current, words[(i + 1) % 4]);
        current = add(current, _mm_alignr_epi8(last, words[(i + 2) % 4], 4));
        current = _mm_sha256msg2_epu32(current, last);
      }
      const __m128i input = add(current, load(&kRound[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, input);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(input, 0x0E));
    }
    abef = add(abef, old_abef);
    cdgh = add(cdgh, old_cdgh);
  }

  const auto lane = [](__m128i x, std::size_t i) {
    alignas(16) std::array<std::uint32_t, 4> lanes;
    _mm_store_si128(reinterpret_cast<__m128i*>(lanes.data()), x);
    return lanes[i];
  };
  state = {lane(abef, 3), lane(abef, 2), lane(cdgh, 3), lane(cdgh, 2),
           lane(abef, 1), lane(abef, 0), lane(cdgh, 1), lane(cdgh, 0)};
}

#endif

void compress_plainly(State& state, std::span<const std::byte> blocks) {
  using std::rotr;
  for (; !blocks.empty(); blocks = blocks.subspan(kBlock)) {
    std::array<std::uint32_t, 64> w;
    for (std::size_t t = 0; t < 16; ++t) {
      w[t] = 0;
      for (std::size_t i = 0; i < 4; ++i)
        w[t] = w[t] << 8 | std::to_integer<std::uint32_t>(blocks[4 * t + i]);
    }
    for (std::size_t t = 16; t < 64; ++t) {
      const std::uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
      const std::uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t t = 0; t < 64; ++t) {
      const std::uint32_t s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
      const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
      const std::uint32_t s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    const State round = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) state[i] += round[i];
  }
}

void compress(State& state, std::span<const std::byte> blocks) {
#ifdef __x86_64__
  static const bool has_instructions = has_sha_instructions();
  if (has_instructions) return compress_with_instructions(state, blocks);
#endif
  compress_plainly(state, blocks);
}

}  // namespace

void Sha256::update(std::span<const std::byte> bytes) {
  const std::size_t taken = size_ % kBlock;
  size_ += bytes.size();
  if (taken != 0) {
    const std::size_t count = std::min(kBlock - taken, bytes.size());
    std::ranges::copy(bytes.first(count), pending_.begin() + static_cast<std::ptrdiff_t>(taken));
    bytes = bytes.subspan(count);
    if (taken + count < kBlock) return;
    compress(state_, pending_);
  }
  const std::size_t whole = bytes.size() - bytes.size() % kBlock;
  compress(state_, bytes.first(whole));
  std::ranges::copy(bytes.subspan(whole), pending_.begin());
}

std::string Sha256::hex() const {
  // The end: a one bit, zeros, and the number of bits in the last eight bytes of a block.
  Sha256 end = *this;
  std::array<std::byte, kBlock + 8> padding{std::byte{0x80}};
  const std::size_t zeros_end = (2 * kBlock - 8 - size_ % kBlock - 1) % kBlock + 1;
  for (std::size_t i = 0; i < 8; ++i)
    padding[zeros_end + i] = static_cast<std::byte>(size_ * 8 >> (56 - 8 * i));
  end.update(std::span(padding).first(zeros_end + 8));
  std::string text;
  for (const std::uint32_t word : end.state_) text += fmt::format("{:08x}", word);
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

}  // namespace tetrad
