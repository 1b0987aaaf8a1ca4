// SPDX-License-Identifier: Apache-2.0
// Any text is a configuration that can be written and read again, or refused.

#include "fuzz/targets.h"
#include "tetrad/config/config.h"

namespace tetrad::testing {

void fuzz_config(std::string_view bytes) {
  read_or_refuse([&] {
    const Config config = parse_config(bytes, "fuzzed");
    require(differences(config, parse_config(to_yaml(config), "written")).empty());
    validate(config);
  });
}

}  // namespace tetrad::testing
