// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/buffer.h"

#include <sys/mman.h>

#include <new>

namespace tetrad {
namespace {

// A walk over more memory than the TLB covers is mostly a walk over page tables; huge pages make those 512
// times shorter.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

std::byte* Buffer::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const bool large = bytes >= 2 * kHugePage;
  const std::size_t unit = large ? kHugePage : kAlignment;
  void* data = std::aligned_alloc(unit, round_up(bytes, unit));
  if (data == nullptr) throw std::bad_alloc();
  if (large) madvise(data, round_up(bytes, unit), MADV_HUGEPAGE);  // a wish: it may fail and nothing is lost
  return static_cast<std::byte*>(data);
}

}  // namespace tetrad
