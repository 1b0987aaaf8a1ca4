// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the two NVFP4 layouts for serving call the tensors of a linear layer, behind the name of its module,
// and what its readers call the modules.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/interchange/tensor_map.h"

namespace tetrad {

enum class ServingFormat : std::uint8_t { modelopt, compressed_tensors };

inline constexpr std::string_view kBlockScales = ".weight_scale";  //!< E4M3, [rows, cols/16]

struct ServingNames {
  std::string_view codes;         //!< U8 [rows, cols/2]
  std::string_view weight_scale;  //!< F32, of the whole tensor
  std::string_view input_scale;   //!< F32
  bool divides;                   //!< by the F32 scales; otherwise they multiply
};

/// By ServingFormat.
inline constexpr std::array<ServingNames, 2> kServingNames = {
    {{".weight", ".weight_scale_2", ".input_scale", false},
     {".weight_packed", ".weight_global_scale", ".input_global_scale", true}}};

constexpr const ServingNames& names_of(ServingFormat format) {
  return kServingNames[static_cast<std::size_t>(format)];
}

/// All that readers call the modules of a matrix that is not NVFP4: lists of exceptions are compared with
/// names, and each reader has its own.
std::vector<std::string> module_names(const MappedParameter& parameter, ServingFormat format);

}  // namespace tetrad
