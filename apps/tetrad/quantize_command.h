// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tetrad/ops/quantize.h"

namespace tetrad::app {

struct QuantizeArguments {
  std::string input;
  std::string output;
  QuantSpec spec;
  std::uint64_t seed = 0;
  int threads = 0;
  bool dequantize = false;
  bool json = false;
};

/// Quantizes every 2-D tensor of a safetensors file into another one and prints the error table.
void quantize_file(const QuantizeArguments& arguments);

/// Quantizes generated tensors in every format and prints the error tables.
void quantize_demo(std::uint64_t seed, int threads, bool json);

}  // namespace tetrad::app
