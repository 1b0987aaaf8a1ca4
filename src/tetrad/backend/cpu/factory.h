// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one function of a variant that others see.

#include "tetrad/backend/cpu/product_kernel.h"
#include "tetrad/ops/backend.h"

namespace tetrad::cpu {

struct VariantOptions {
  const CpuOptions& options;
  const char* instruction_set;  //!< its name
  ProductKernel kernel;
};

using Factory = Backend*(const VariantOptions& options);

}  // namespace tetrad::cpu
