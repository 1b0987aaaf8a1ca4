// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the ranks of a run stay together: what one of them finds, all know before they act on it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/ops/communicator.h"

namespace tetrad {

/// What all ranks throw alike: they can still act together, to save, say. After any other Error they cannot.
class SharedError : public Error {
  using Error::Error;
};

/// Runs `work` on this rank. Where it throws Error on any rank, all throw a SharedError: that of the first.
void together(Communicator& ranks, const std::function<void()>& work);

/// The same, with work for rank 0 alone.
void on_first(Communicator& ranks, const std::function<void()>& work);

/// Whether it is so on any rank.
bool on_any(Communicator& ranks, bool here);

/// Rank 0's text.
std::string from_first(Communicator& ranks, const std::string& text);

/// `compute` of 0 … count - 1, in order, of which each rank computes a share: one after the other, the first
/// rank no fewer than any. Where it throws Error on any rank, all throw a SharedError.
std::vector<std::vector<double>> dealt_lists(Communicator& ranks, std::int64_t count,
                                             const std::function<std::vector<double>(std::int64_t)>& compute);

/// The same with a number each. All ranks compute equally often, the last number again where there is none
/// left, so that `compute` may be something they do together.
std::vector<double> dealt(Communicator& ranks, std::int64_t count,
                          const std::function<double(std::int64_t)>& compute);

}  // namespace tetrad
