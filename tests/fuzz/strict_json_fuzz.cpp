// SPDX-License-Identifier: Apache-2.0
// Any text is a JSON value that is the same when it is written and read again, or refused.

#include <nlohmann/json.hpp>

#include "fuzz/targets.h"
#include "tetrad/io/strict_json.h"

namespace tetrad::testing {

void fuzz_strict_json(std::string_view bytes) {
  constexpr JsonLimits kLimits = {.bytes = 4096, .depth = 8};
  read_or_refuse([&] {
    const nlohmann::json value = parse_strict_json(bytes, "fuzzed", kLimits);
    require(bytes.size() <= kLimits.bytes);
    require(parse_strict_json(value.dump(), "written", {.bytes = 8 * kLimits.bytes, .depth = 8}) == value);
    const std::int64_t number = checked_integer(value, "it", -10, 10);
    require(number >= -10 && number <= 10 && value.is_number_integer());
  });
}

}  // namespace tetrad::testing
