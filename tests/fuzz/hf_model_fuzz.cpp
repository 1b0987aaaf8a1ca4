// SPDX-License-Identifier: Apache-2.0
// Any text is a config.json of a model that can be counted, or refused.

#include "fuzz/targets.h"
#include "tetrad/config/hf_model.h"

namespace tetrad::testing {

void fuzz_hf_model(std::string_view bytes) {
  read_or_refuse([&] {
    const ModelConfig model = parse_hf_model(bytes, "fuzzed");
    require(!model.pattern.empty() && parameter_count(model) > 0);
  });
}

}  // namespace tetrad::testing
