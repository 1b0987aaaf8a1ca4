// SPDX-License-Identifier: Apache-2.0
#pragma once
// What linear layers do in the recipes, and in what may be asked for besides.

#include <string>
#include <vector>

#include "tetrad/ops/linear_precision.h"

namespace tetrad::selftest {

struct NamedPrecision {
  std::string name;
  LinearPrecision precision;
};

/// Every recipe as it is in the middle of a model, and NVFP4 with MS-EDEN, centred, and with the sources of
/// the straight-through estimator.
std::vector<NamedPrecision> precisions();

}  // namespace tetrad::selftest
