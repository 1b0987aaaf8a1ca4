// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tetrad::cuda {

/// Held while a kernel's attributes, which belong to the process, are set and used. (Its own class because
/// <mutex> brings much that every file of kernels would have to read.)
class KernelAttributesLock {
 public:
  KernelAttributesLock();
  KernelAttributesLock(const KernelAttributesLock&) = delete;
  KernelAttributesLock& operator=(const KernelAttributesLock&) = delete;
  ~KernelAttributesLock();
};

}  // namespace tetrad::cuda
