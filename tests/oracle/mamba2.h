// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Mamba-2 mixer as its recurrence says, token by token, in double precision.

#include <cstdint>
#include <vector>

namespace tetrad::oracle {

/// silu(bias + causal depthwise convolution). x [batch, sequence, channels], weight [channels, kernel].
/// `document_starts` [batch, sequence]: what comes before them is zero; none: the sequences' own.
std::vector<double> causal_conv(long batch, long sequence, long channels, long kernel,
                                const std::vector<double>& x, const std::vector<double>& weight,
                                const std::vector<double>& bias,
                                const std::vector<std::int32_t>& document_starts = {});

struct ScanSizes {
  long batch, sequence, heads, head_dim, groups, state;
};

struct ScanTensors {
  std::vector<double> x;                           //!< [batch, sequence, heads, head_dim]
  std::vector<double> b, c;                        //!< [batch, sequence, groups, state]
  std::vector<double> dt;                          //!< [batch, sequence, heads], raw
  std::vector<double> dt_bias, a_log, d;           //!< [heads]
  std::vector<std::int32_t> document_starts = {};  //!< [batch, sequence], or none

  /// Whether nothing of the state is left at this token.
  bool begins(long sequence, long token) const {
    return !document_starts.empty() && document_starts[static_cast<std::size_t>(token)] == token % sequence;
  }
};

/// y, like x. `states`, if given, gets the state before each token: [batch, sequence, heads, head_dim,
/// state].
std::vector<double> scan(const ScanSizes& sizes, const ScanTensors& in,
                         std::vector<double>* states = nullptr);

/// The gradient of sum(dy * y) with respect to everything that the scan reads.
ScanTensors scan_backward(const ScanSizes& sizes, const ScanTensors& in, const std::vector<double>& dy);

}  // namespace tetrad::oracle
