// SPDX-License-Identifier: Apache-2.0
#pragma once
// Times what is on a context's stream, by events of the device.

#include <memory>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/timeline.h"

namespace tetrad::cuda {

std::unique_ptr<Timeline> make_timeline(const Device& device);

}  // namespace tetrad::cuda
