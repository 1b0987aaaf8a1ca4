// SPDX-License-Identifier: Apache-2.0
#pragma once
// config.json and generation_config.json, as transformers reads them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "tetrad/core/dtype.h"
#include "tetrad/interchange/tensor_map.h"

namespace tetrad {

struct HfConfigOptions {
  std::int64_t context = 0;                        //!< tokens that the model can look at
  DType dtype = DType::bf16;                       //!< type of the weights that are not quantized
  std::optional<std::int32_t> begin_of_text = {};  //!< token in front of every text
  std::vector<std::int32_t> ends_of_text = {};     //!< tokens
};

/// config/hf_model reads the same model back, except for its name and the chunk of the scan.
nlohmann::ordered_json hf_config(const ModelConfig& model, Family family, const HfConfigOptions& options);

nlohmann::ordered_json hf_generation_config(const HfConfigOptions& options);

}  // namespace tetrad
