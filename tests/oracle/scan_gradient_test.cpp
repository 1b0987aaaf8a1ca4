// SPDX-License-Identifier: Apache-2.0
// The oracle's gradients of the scan, written down by hand, against central differences of its recurrence.

#include <gtest/gtest.h>

#include <random>

#include "oracle/mamba2.h"
#include "support/gradient.h"

namespace tetrad::oracle {
namespace {

std::vector<double> normal(long count, unsigned seed, double mean = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> distribution(mean, 1);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = distribution(engine);
  return values;
}

void expect_derivative(const std::vector<std::int32_t>& document_starts) {
  const ScanSizes sizes{2, 7, 4, 3, 2, 5};
  const long tokens = sizes.batch * sizes.sequence;
  const long inner = sizes.heads * sizes.head_dim;
  const long keys = sizes.groups * sizes.state;
  const ScanTensors in{normal(tokens * inner, 1),  normal(tokens * keys, 2),
                       normal(tokens * keys, 3),   normal(tokens * sizes.heads, 4),
                       normal(sizes.heads, 5, -1), normal(sizes.heads, 6, -1),
                       normal(sizes.heads, 7),     document_starts};
  const std::vector<double> dy = normal(tokens * inner, 8);
  const ScanTensors gradient = scan_backward(sizes, in, dy);
  for (const auto member : {&ScanTensors::x, &ScanTensors::b, &ScanTensors::c, &ScanTensors::dt,
                            &ScanTensors::dt_bias, &ScanTensors::a_log, &ScanTensors::d}) {
    const auto loss = [&](const std::vector<double>& values) {
      ScanTensors moved = in;
      moved.*member = values;
      const std::vector<double> y = scan(sizes, moved);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    EXPECT_LT(testing::relative_error(gradient.*member, testing::numeric_gradient(loss, in.*member)), 1e-8);
  }
}

TEST(ScanGradient, IsTheDerivative) { expect_derivative({}); }

TEST(ScanGradient, IsTheDerivativeWhereDocumentsBegin) {
  expect_derivative({0, 0, 2, 2, 2, 5, 6, 0, 1, 1, 1, 1, 1, 1});
}

}  // namespace
}  // namespace tetrad::oracle
