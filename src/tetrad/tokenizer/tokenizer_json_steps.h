// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps of a tokenizer.json around its model. For tokenizer_json_read.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tetrad/tokenizer/bpe.h"

namespace tetrad {

/// Throws Error (bad input) that begins with `where`, the file's name.
[[noreturn]] void refuse_tokenizer(std::string_view where, std::string_view reason);

/// The member `key` of an object: true, false, or `otherwise` if it is null or not there. Anything else is
/// refused, as the package does; so is a member that is missing where there is no `otherwise`.
bool read_flag(const nlohmann::json& object, const char* key, std::optional<bool> otherwise,
               std::string_view where);

/// A short form of a value, for messages.
std::string shown_json(const nlohmann::json& value);

void read_normalizer(const nlohmann::json& value, std::string_view where, BpeDefinition& definition);

void check_decoder(const nlohmann::json& value, std::string_view where);

/// Fills in the splits and add_prefix_space.
void read_pre_tokenizer(const nlohmann::json& value, std::string_view where, BpeDefinition& definition);

/// Fills in prefix and suffix. Tokens must be there, and added ones in order of their ids.
void read_post_processor(const nlohmann::json& value, std::string_view where, BpeDefinition& definition);

}  // namespace tetrad
