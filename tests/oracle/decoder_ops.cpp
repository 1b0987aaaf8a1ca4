// SPDX-License-Identifier: Apache-2.0
#include "decoder_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

namespace tetrad::oracle {
namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

/// Rows of a matrix cut into groups that are normalised each for itself.
Values normalised(const Values& x, const Values& weight, std::size_t group, double epsilon) {
  Values result(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += group) {
    double squares = 0;
    for (std::size_t i = begin; i < begin + group; ++i) squares += x[i] * x[i];
    const double rms = std::sqrt(squares / static_cast<double>(group) + epsilon);
    for (std::size_t i = begin; i < begin + group; ++i) result[i] = x[i] / rms * weight[i % weight.size()];
  }
  return result;
}

}  // namespace

Values rms_norm(const Values& x, const Values& weight, double epsilon) {
  return normalised(x, weight, weight.size(), epsilon);
}

Values gated_norm(const Values& y, const Values& z, const Values& weight, long groups, double epsilon) {
  Values gated(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) gated[i] = y[i] * silu(z[i]);
  return normalised(gated, weight, weight.size() / static_cast<std::size_t>(groups), epsilon);
}

Values rope_frequencies(long head_dim, double theta, const RopeStretch* stretch) {
  Values result;
  for (long i = 0; i < head_dim / 2; ++i) {
    const double f = 1 / std::pow(theta, 2 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (stretch == nullptr) {
      result.push_back(f);
      continue;
    }
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < stretch->context / stretch->high) {
      result.push_back(f);
    } else if (wavelength > stretch->context / stretch->low) {
      result.push_back(f / stretch->factor);
    } else {
      const double s = (stretch->context / wavelength - stretch->low) / (stretch->high - stretch->low);
      result.push_back((1 - s) * f / stretch->factor + s * f);
    }
  }
  return result;
}

Values rope(const Values& x, long width, long sequence, long first_position, const Values& frequencies,
            bool inverse, const std::vector<std::int32_t>& document_starts) {
  Values result(x.size());
  const std::size_t half = frequencies.size();
  for (std::size_t at = 0; at < x.size(); at += 2 * half) {
    const long row = static_cast<long>(at) / width;
    const long start = document_starts.empty() ? 0 : document_starts[static_cast<std::size_t>(row)];
    const auto position = static_cast<double>(first_position + row % sequence - start);
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = (inverse ? -1 : 1) * position * frequencies[i];
      result[at + i] = x[at + i] * std::cos(angle) - x[at + half + i] * std::sin(angle);
      result[at + half + i] = x[at + half + i] * std::cos(angle) + x[at + i] * std::sin(angle);
    }
  }
  return result;
}

Values swiglu(const Values& x, long width) {
  const auto half = static_cast<std::size_t>(width);
  Values result;
  for (std::size_t row = 0; row < x.size(); row += 2 * half)
    for (std::size_t i = 0; i < half; ++i) result.push_back(silu(x[row + i]) * x[row + half + i]);
  return result;
}

Values squared_relu(const Values& x) {
  Values result;
  for (const double value : x) result.push_back(value > 0 ? value * value : 0);
  return result;
}

Values cross_entropy(const Values& hidden, const Values& head, const std::vector<std::int32_t>& targets,
                     long width) {
  const auto columns = static_cast<std::size_t>(width);
  const std::size_t vocab = head.size() / columns;
  Values losses;
  Values logits(vocab);
  for (std::size_t token = 0; token < targets.size(); ++token) {
    if (targets[token] < 0) {
      losses.push_back(0);
      continue;
    }
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t v = 0; v < vocab; ++v) {
      logits[v] = 0;
      for (std::size_t i = 0; i < columns; ++i)
        logits[v] += hidden[token * columns + i] * head[v * columns + i];
      largest = std::max(largest, logits[v]);
    }
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - largest);
    losses.push_back(largest - logits[static_cast<std::size_t>(targets[token])] + std::log(sum));
  }
  return losses;
}

void AdamW::step(const Values& gradient) {
  ++steps;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    first[i] = beta1 * first[i] + (1 - beta1) * gradient[i];
    second[i] = beta2 * second[i] + (1 - beta2) * gradient[i] * gradient[i];
    const double m = first[i] / (1 - std::pow(beta1, static_cast<double>(steps)));
    const double v = second[i] / (1 - std::pow(beta2, static_cast<double>(steps)));
    weight[i] -= learning_rate * decay * weight[i] + learning_rate * m / (std::sqrt(v) + epsilon);
  }
}

}  // namespace tetrad::oracle
