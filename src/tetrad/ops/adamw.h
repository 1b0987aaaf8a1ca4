// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW (numerics/adamw.h) on a list of tensors, and the norm that clipping needs. Everything is f32, but
// that moments may be stored in BF16; sums of squares are f64 in a fixed order.

#include <cstdint>
#include <span>
#include <vector>

#include "tetrad/core/dtype.h"
#include "tetrad/numerics/adamw.h"

namespace tetrad {

/// One parameter tensor, or a part of one, as the optimizer sees it.
struct AdamWTensor {
  float* weight = nullptr;
  const float* gradient = nullptr;
  void* first_moment = nullptr;
  void* second_moment = nullptr;
  std::int64_t size = 0;
  bool decay = true;             //!< matrices yes; norms, biases and the scan's parameters no
  bool moments_on_host = false;  //!< they lie in memory of Backend::allocate_on_host()
  DType moments = DType::f32;    //!< or bf16, rounded stochastically
  std::uint32_t parameter = 0;   //!< its number in the model: with it random bits are drawn
  std::int64_t first = 0;        //!< element of the parameter that this begins with, a multiple of four
};

/// How a device reaches moments on the host. Both give the same bits.
enum class HostMoments : std::uint8_t {
  staged,  //!< copied to the device and back, piece by piece
  mapped,  //!< read and written where they are
};

/// How the moments of a parameter are stored in a run that stores them as `wanted`: only those of linear
/// layers' weights, nearly all there are, may be in fewer bits.
constexpr DType moment_type(DType wanted, bool is_linear) { return is_linear ? wanted : DType::f32; }

/// Bytes of the two moments of a tensor.
std::int64_t moment_bytes(std::int64_t size, DType type);

/// How moments are shared out if at least `bytes` of them are to be on the host, with `sizes` the
/// moment_bytes() of all tensors: true for those that are. Whole tensors, in the order of the list, small
/// ones never: the results do not depend on it.
std::vector<bool> moments_on_host(std::span<const std::int64_t> sizes, std::int64_t bytes);

struct AdamWStep {
  std::span<const AdamWTensor> tensors;
  std::int64_t step = 1;  //!< from 1, for bias correction and random bits
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;
  float gradient_scale = 1;  //!< from clipping
  std::uint64_t seed = 0;    //!< of the run's stochastic rounding
};

AdamWRates rates_of(const AdamWStep& op);

}  // namespace tetrad
