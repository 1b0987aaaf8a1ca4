// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/kernel_attributes.h"

#include <mutex>

namespace tetrad::cuda {
namespace {

std::mutex& kernel_attributes() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

KernelAttributesLock::KernelAttributesLock() { kernel_attributes().lock(); }
KernelAttributesLock::~KernelAttributesLock() { kernel_attributes().unlock(); }

}  // namespace tetrad::cuda
