// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/memory_budget.h"

#include "tetrad/http/request.h"

namespace tetrad {

bool MemoryBudget::add(std::size_t bytes, bool may_exceed) {
  std::size_t held = held_;
  do {
    if (!may_exceed && (held > limit_ || bytes > limit_ - held)) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes));
  std::size_t peak = peak_;
  while (peak < held + bytes && !peak_.compare_exchange_weak(peak, held + bytes)) continue;
  return true;
}

void MemoryShare::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return;
  if (bytes > budget_.limit_ - budget_.set_aside_)
    throw HttpError(413, fmt::format("the request may need {} bytes of memory, more than the {} that the "
                                     "server has for all: send or ask for less at a time",
                                     bytes, budget_.limit_ - budget_.set_aside_));
  if (!budget_.add(bytes - bytes_, false))
    throw HttpError(503, "the memory for requests is taken by others; try again later");
  bytes_ = bytes;
}

void MemoryShare::hold_exactly(std::size_t bytes) {
  if (bytes > bytes_)
    budget_.add(bytes - bytes_, true);
  else
    budget_.held_ -= bytes_ - bytes;
  bytes_ = bytes;
}

}  // namespace tetrad
