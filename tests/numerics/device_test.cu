// SPDX-License-Identifier: Apache-2.0
// numerics/ on a GPU gives the host's bits. Needs a CUDA device to run; compiling it is a check of its own.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tetrad/backend/cuda/quantize/e2m1_words.cuh"
#include "tetrad/backend/cuda/quantize/e4m3_words.cuh"
#include "tetrad/numerics/bf16.h"
#include "tetrad/numerics/f16.h"
#include "tetrad/numerics/fp8.h"
#include "tetrad/numerics/hadamard.h"
#include "tetrad/numerics/mxfp4.h"
#include "tetrad/numerics/nvfp4.h"
#include "tetrad/numerics/philox.h"

namespace tetrad {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// Each case is a pure function from an index to a few words.
constexpr int kWords = 16;

/// Every BF16 value, then f32 patterns spread over all of them.
TETRAD_HD float value_at(std::uint32_t index) {
  return std::bit_cast<float>(index < 65536 ? index << 16 : index * 2654435761u);
}

struct Casts {
  TETRAD_HD static void run(std::uint32_t index, std::uint32_t* out) {
    const float x = value_at(index);
    out[0] = E2m1::encode(x);
    out[1] = E4m3::encode(x);
    out[2] = Bf16::from_f32(x).bits;
    out[3] = std::bit_cast<std::uint32_t>(E4m3::decode(index & 0xFF));
    out[4] = std::bit_cast<std::uint32_t>(F16::decode(index & 0xFFFF));
    out[5] = std::bit_cast<std::uint32_t>(E8m0::decode(index & 0xFF));
  }
};

struct StochasticRounding {
  TETRAD_HD static void run(std::uint32_t index, std::uint32_t* out) {  // all BF16 x 256 bytes in 2^24 cases
    const float x = std::bit_cast<float>((index & 0xFFFF) << 16);
    const std::uint32_t byte = index >> 16 & 0xFF;
    out[0] = E2m1::encode_stochastic(x, byte);
    out[1] = E2m1::encode_stochastic(x, byte, StochasticBias::hardware);
    out[2] = E4m3::encode_stochastic(x, byte);
  }
};

struct Scales {
  TETRAD_HD static void run(std::uint32_t index, std::uint32_t* out) {
    const float amax = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value_at(index)) & 0x7FFFFFFFu);
    if (!(amax <= nvfp4::kFloatMax)) return;
    const float block = amax * (static_cast<float>(index % 1000) * 1e-3f);
    for (int chosen = 0; chosen < 2; ++chosen) {
      const nvfp4::TensorScale tensor =
          nvfp4::tensor_scale(amax, chosen == 1 ? Scaling::search : Scaling::standard);
      const auto candidate = static_cast<int>(index % nvfp4::kMostCandidates);
      const nvfp4::BlockScale scale = nvfp4::scale_of_byte(
          nvfp4::candidates_for(block, tensor).byte(chosen == 1 ? candidate : 0), tensor);
      out[6 * chosen] = std::bit_cast<std::uint32_t>(tensor.decode);
      out[6 * chosen + 1] = scale.byte;
      out[6 * chosen + 2] = std::bit_cast<std::uint32_t>(scale.encode);
      out[6 * chosen + 3] = std::bit_cast<std::uint32_t>(nvfp4::decode(index & 15, scale.byte, tensor));
    }
    out[4] = mxfp4::block_scale(amax, Scaling::standard).byte | mxfp4::block_scale(amax, Scaling::up).byte
                                                                    << 8;
    out[5] = std::bit_cast<std::uint32_t>(fp8::block_scale(amax).encode);
    out[10] = std::bit_cast<std::uint32_t>(fp8::block_scale(amax).decode);
  }
};

struct Random {
  TETRAD_HD static void run(std::uint32_t index, std::uint32_t* out) {
    const RandomStream stream{
        .seed = 0x0123456789ABCDEFull, .step = index / 7, .microbatch = 3, .tensor = 11};
    const PhiloxWords words = stream.group(index);
    for (int i = 0; i < 4; ++i) out[i] = words[static_cast<std::size_t>(i)];
  }
};

struct Transform {
  TETRAD_HD static void run(std::uint32_t index, std::uint32_t* out) {
    float v[16];
    for (std::uint32_t i = 0; i < 16; ++i) {
      const std::uint32_t bits = (index * 16 + i) * 2654435761u;
      v[i] =
          std::bit_cast<float>((bits & 0xBFFF0000u) | 0x10000000u);  // finite BF16 values of many magnitudes
    }
    constexpr SignMask kSigns = kFixedSigns;
    hadamard<16>(v, kSigns);
    for (int i = 0; i < 16; ++i) out[i] = std::bit_cast<std::uint32_t>(round_to_bf16(v[i]));
  }
};

template <typename Case>
__global__ void run_on_device(std::uint32_t count, std::uint32_t* out) {
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) Case::run(index, out + static_cast<std::size_t>(index) * kWords);
}

template <typename Case>
void expect_same_bits(std::uint32_t count) {
  const std::size_t words = static_cast<std::size_t>(count) * kWords;
  std::vector<std::uint32_t> expected(words);
  std::vector<std::uint32_t> actual(words);
  for (std::uint32_t i = 0; i < count; ++i)
    Case::run(i, expected.data() + static_cast<std::size_t>(i) * kWords);

  std::uint32_t* device = nullptr;
  check(cudaMalloc(&device, words * sizeof(std::uint32_t)));
  check(cudaMemset(device, 0, words * sizeof(std::uint32_t)));
  run_on_device<Case><<<(count + 255) / 256, 256>>>(count, device);
  check(cudaGetLastError());
  check(cudaMemcpy(actual.data(), device, words * sizeof(std::uint32_t), cudaMemcpyDeviceToHost));
  check(cudaFree(device));
  for (std::size_t i = 0; i < words; ++i)
    ASSERT_EQ(actual[i], expected[i]) << "case " << i / kWords << ", word " << i % kWords;
}

/// Counts the f32 patterns that the hardware's cast takes elsewhere than the definition does; all but NaN.
__global__ void compare_e4m3_casts(unsigned long long* differences) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  unsigned long long found = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < 1ull << 32; i += step) {
    const auto bits = static_cast<std::uint32_t>(i);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) continue;
    const float x = std::bit_cast<float>(bits);
    const float other = -x * 0.5f;  // each place in the word, each with another neighbour
    const std::uint32_t code = E4m3::encode(x);
    const std::uint32_t of_other = E4m3::encode(other);
    if (cuda::e4m3_codes(x, other, x, other) != (code | of_other << 8 | code << 16 | of_other << 24)) ++found;
    if (cuda::e4m3_codes(other, x, other, x) != (of_other | code << 8 | of_other << 16 | code << 24)) ++found;
  }
  if (found > 0) atomicAdd(differences, found);
}

/// The same for E2M1 below 7, and without the sign, which does not come from this cast.
__global__ void compare_e2m1_casts(unsigned long long* differences) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  unsigned long long found = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < 1ull << 32; i += step) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
    if (!(x > -7.0f && x < 7.0f)) continue;
    const float other = -x * 0.5f;
    const float even[4] = {x, other, x, other};
    const float odd[4] = {other, other, x, x};
    const std::uint32_t code = E2m1::encode(x) & 7u;
    const std::uint32_t of_other = E2m1::encode(other) & 7u;
    const std::uint32_t expected = (code | of_other << 4) | (of_other | of_other << 4) << 8 |
                                   (code | code << 4) << 16 | (of_other | code << 4) << 24;
    if (cuda::nearest_nibbles(even, odd) != expected) ++found;
  }
  if (found > 0) atomicAdd(differences, found);
}

void expect_no_difference(void (*compare)(unsigned long long*)) {
  unsigned long long* differences = nullptr;
  check(cudaMalloc(&differences, sizeof(*differences)));
  check(cudaMemset(differences, 0, sizeof(*differences)));
  compare<<<2048, 256>>>(differences);
  check(cudaGetLastError());
  unsigned long long found = 1;
  check(cudaMemcpy(&found, differences, sizeof(found), cudaMemcpyDeviceToHost));
  check(cudaFree(differences));
  EXPECT_EQ(found, 0u);
}

TEST(Device, HardwareCastToE4m3IsTheDefinitionOnEveryInput) { expect_no_difference(compare_e4m3_casts); }
/// By an instruction where the device has one (Blackwell), else in a few of plain arithmetic.
TEST(Device, FastCastToE2m1IsTheDefinitionOnEveryInput) { expect_no_difference(compare_e2m1_casts); }

TEST(Device, CastsAreTheHosts) { expect_same_bits<Casts>(1u << 24); }
TEST(Device, StochasticRoundingIsTheHosts) { expect_same_bits<StochasticRounding>(1u << 24); }
TEST(Device, ScalesAreTheHosts) { expect_same_bits<Scales>(1u << 24); }
TEST(Device, RandomBitsAreTheHosts) { expect_same_bits<Random>(1u << 20); }
TEST(Device, TransformIsTheHosts) { expect_same_bits<Transform>(1u << 20); }

}  // namespace
}  // namespace tetrad
