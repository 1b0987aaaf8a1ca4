// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model's shape from a Hugging Face config.json.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tetrad/model/config.h"

namespace tetrad {

/// LlamaForCausalLM or NemotronHForCausalLM. Throws Error (bad input) for other architectures, and for
/// biases, activations, position encodings and blocks that we do not have.
ModelConfig read_hf_model(const std::string& path);

/// The same from the text of the file; `name` stands for it in messages.
ModelConfig parse_hf_model(std::string_view json, const std::string& name);

/// What else is in such a file: an object, in which Python's Infinity has become 1e300. Throws Error (bad
/// input) also for duplicate keys and deep nesting.
nlohmann::json parse_hf_json(std::string_view text, const std::string& name);

}  // namespace tetrad
