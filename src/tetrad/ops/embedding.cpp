// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/embedding.h"

#include "tetrad/core/error.h"

namespace tetrad {

void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    TETRAD_CHECK(tokens[i] >= 0 && tokens[i] < vocab,
                 "token {} has id {}, but the model's vocabulary ends at {}: was the data made with another "
                 "tokenizer?",
                 i, tokens[i], vocab - 1);
}

}  // namespace tetrad
