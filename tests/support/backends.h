#pragma once
// Every op's tests run over every backend that this build has.

#include <vector>

#include "tetrad/ops/backend.h"

namespace tetrad::testing {

/// Names, because a backend is created when a test asks for it.
inline std::vector<std::string> backend_names() { return {"cpu"}; }

inline Backend& backend(const std::string& /*name*/) { return cpu_backend(); }

}  // namespace tetrad::testing
