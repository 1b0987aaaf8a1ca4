#pragma once

#include "tetrad/config/config.h"

namespace tetrad::app {

/// What a run would do: configuration with origins, sizes, and the precision of every GEMM of every layer.
void print_dry_run(const Config& config, const Provenance& provenance);

}  // namespace tetrad::app
