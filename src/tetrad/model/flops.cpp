// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/flops.h"

#include <vector>

namespace tetrad {
namespace {

/// Of a block's forward pass, for one token.
struct BlockFlops {
  std::int64_t first = 0;        //!< its linear layers
  std::int64_t second = 0;       //!< … of which this is never needed again
  std::int64_t convolution = 0;  //!< Mamba-2's
  std::int64_t mixing = 0;       //!< of tokens: attention, or the scan

  std::int64_t forward() const { return first + second + convolution + mixing; }
  std::int64_t again(Keep keep) const {
    if (keep == Keep::all) return 0;
    return convolution + (keep == Keep::nothing ? first + mixing : 0);
  }
};

BlockFlops block_flops(const ModelConfig& c, char letter, std::int64_t sequence) {
  const std::vector<LinearShape> linears = linear_shapes(c, letter);
  BlockFlops flops;
  flops.first = 2 * linears[0].out * linears[0].in;
  flops.second = 2 * linears[1].out * linears[1].in;
  if (letter == '*')  // scores and values, each with half of the sequence on average
    flops.mixing = 2 * c.heads * c.head_dim * (sequence + 1);
  if (letter == 'M') {
    flops.convolution = 2 * c.mamba.conv_channels() * c.mamba.conv;
    // State update and output, as a recurrence would compute them.
    flops.mixing = 6 * c.mamba.inner() * c.mamba.state;
  }
  return flops;
}

}  // namespace

double training_flops_per_token(const ModelConfig& c, std::int64_t sequence) {
  std::int64_t forward = 2 * c.vocab * c.hidden;
  for (const char letter : c.pattern) forward += block_flops(c, letter, sequence).forward();
  return 3 * static_cast<double>(forward);  // the backward pass has two products for each of the forward pass
}

double recomputed_flops_per_token(const ModelConfig& c, std::int64_t sequence,
                                  const RecomputePlan& recompute) {
  std::int64_t sum = 0;
  for (std::int64_t index = 0; index < c.blocks(); ++index) {
    const char letter = c.pattern[static_cast<std::size_t>(index)];
    sum += block_flops(c, letter, sequence).again(recompute.of(index, letter));
  }
  return static_cast<double>(sum);
}

}  // namespace tetrad
