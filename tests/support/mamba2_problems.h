// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inputs of the convolution and the scan, the same every time and exact in BF16.

#include <cstdint>

#include "oracle/mamba2.h"
#include "support/activations.h"
#include "support/documents.h"
#include "tetrad/ops/mamba2.h"

namespace tetrad::testing {

struct ConvProblem {
  std::int64_t batch, sequence, channels, kernel;
  Values x, weight, bias, dout;
  DocumentStarts document_starts;  //!< none unless with_documents()

  ConvProblem(std::int64_t of_batch, std::int64_t of_sequence, std::int64_t of_channels,
              std::int64_t of_kernel)
      : batch(of_batch),
        sequence(of_sequence),
        channels(of_channels),
        kernel(of_kernel),
        x(normal_values(batch * sequence * channels, 1)),
        weight(normal_values(channels * kernel, 2, 0.5)),
        bias(normal_values(channels, 3, 0.5)),
        dout(normal_values(batch * sequence * channels, 4)) {}

  std::int64_t rows() const { return batch * sequence; }
  ConvProblem with_documents() const {
    ConvProblem problem = *this;
    problem.document_starts = some_documents(batch, sequence);
    return problem;
  }
  Values expected() const {
    return oracle::causal_conv(batch, sequence, channels, kernel, x, weight, bias, document_starts);
  }
};

/// Time steps: as initialised; from none at all to a complete forgetting, side by side; and so small that the
/// state remembers everything.
enum class Regime { usual, extreme, remembering };

struct ScanProblem {
  Mamba2Shape shape;
  oracle::ScanTensors in;
  Values dy;

  explicit ScanProblem(const Mamba2Shape& of_shape, Regime regime = Regime::usual) : shape(of_shape) {
    in.x = normal_values(rows() * shape.inner(), 1);
    in.b = normal_values(rows() * shape.groups * shape.state, 2);
    in.c = normal_values(rows() * shape.groups * shape.state, 3);
    in.dt = normal_values(rows() * shape.heads, 4);
    in.dt_bias = normal_values(shape.heads, 5, 0.5, regime == Regime::remembering ? -7 : -2);
    in.a_log = normal_values(shape.heads, 6, 0.5, regime == Regime::remembering ? -4 : 1);
    in.d = normal_values(shape.heads, 7, 0.5, 1);
    dy = normal_values(rows() * shape.inner(), 8);
    if (regime != Regime::extreme) return;
    for (std::size_t i = 0; i < in.dt.size(); ++i) {
      if (i % 5 == 1) in.dt[i] = -90;
      if (i % 11 == 2) in.dt[i] = 40;
      if (i % 29 == 7) in.dt[i] = 3072;
    }
  }

  std::int64_t rows() const { return shape.batch * shape.sequence; }
  ScanProblem with_documents() const {
    ScanProblem problem = *this;
    problem.in.document_starts = some_documents(shape.batch, shape.sequence);
    return problem;
  }
  oracle::ScanSizes sizes() const {
    return {shape.batch, shape.sequence, shape.heads, shape.head_dim, shape.groups, shape.state};
  }
  std::int64_t states() const { return shape.batch * shape.chunks() * shape.inner() * shape.state; }

  /// Selects the states before chunks from the oracle's states before every token.
  Values before_chunks(const Values& states) const {
    Values result;
    const std::int64_t size = shape.inner() * shape.state;
    for (std::int64_t batch = 0; batch < shape.batch; ++batch)
      for (std::int64_t t = 0; t < shape.sequence; t += shape.chunk) {
        const auto first = states.begin() + (batch * shape.sequence + t) * size;
        result.insert(result.end(), first, first + size);
      }
    return result;
  }
};

/// These problems, and then the same with documents.
template <typename Problem>
std::vector<Problem> with_documents(std::vector<Problem> problems) {
  for (std::size_t i = problems.size(); i-- > 0;) problems.push_back(problems[i].with_documents());
  return problems;
}

}  // namespace tetrad::testing
