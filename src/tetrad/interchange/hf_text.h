// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a Hugging Face folder says about the texts of its model: context, and the tokens that begin and end
// one.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tetrad/model/config.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

/// From `config`, the folder's config.json; its generation_config.json, which comes first where both say
/// something, because generation follows it; and its tokenizer_config.json, whose tokens `tokenizer` finds
/// (nullptr: there is none). Ids that the model, with `vocab` tokens, does not have are left out with a
/// warning. Throws Error (bad input) for values of a wrong kind.
TextConfig read_hf_text(const std::filesystem::path& folder, const nlohmann::json& config, std::int64_t vocab,
                        const Tokenizer* tokenizer, std::vector<std::string>& warnings);

}  // namespace tetrad
