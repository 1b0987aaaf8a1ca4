// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/config/config.h"

namespace tetrad::app {

/// What a run would do: configuration with origins, sizes, and the precision of every GEMM of every layer.
/// Memory is what `backend` would need, which need not be there.
void print_dry_run(const Config& config, const Provenance& provenance, std::string_view backend);

}  // namespace tetrad::app
