// SPDX-License-Identifier: Apache-2.0
#include "oracle/mamba2.h"

#include <cmath>

namespace tetrad::oracle {

std::vector<double> causal_conv(long batch, long sequence, long channels, long kernel,
                                const std::vector<double>& x, const std::vector<double>& weight,
                                const std::vector<double>& bias,
                                const std::vector<std::int32_t>& document_starts) {
  std::vector<double> out;
  for (long b = 0; b < batch; ++b)
    for (long t = 0; t < sequence; ++t) {
      const long first =
          document_starts.empty() ? 0 : document_starts[static_cast<std::size_t>(b * sequence + t)];
      for (long c = 0; c < channels; ++c) {
        double sum = bias[static_cast<std::size_t>(c)];
        for (long j = 0; j < kernel; ++j) {
          const long s = t - kernel + 1 + j;
          if (s >= first)
            sum += weight[static_cast<std::size_t>(c * kernel + j)] *
                   x[static_cast<std::size_t>((b * sequence + s) * channels + c)];
        }
        out.push_back(sum / (1 + std::exp(-sum)));
      }
    }
  return out;
}

std::vector<double> scan(const ScanSizes& sizes, const ScanTensors& in, std::vector<double>* states) {
  std::vector<double> y(in.x.size());
  std::vector<double> state(static_cast<std::size_t>(sizes.heads * sizes.head_dim * sizes.state));
  if (states != nullptr) states->clear();
  for (long b = 0; b < sizes.batch; ++b) {
    for (double& value : state) value = 0;
    for (long t = 0; t < sizes.sequence; ++t) {
      if (states != nullptr) states->insert(states->end(), state.begin(), state.end());
      const long token = b * sizes.sequence + t;
      for (long h = 0; h < sizes.heads; ++h) {
        const auto head = static_cast<std::size_t>(h);
        const long group = token * sizes.groups + h * sizes.groups / sizes.heads;
        const double raw = in.dt[static_cast<std::size_t>(token * sizes.heads + h)] + in.dt_bias[head];
        const double dt = raw > 30 ? raw : std::log1p(std::exp(raw));
        const double decay = in.begins(sizes.sequence, token) ? 0 : std::exp(-dt * std::exp(in.a_log[head]));
        for (long p = 0; p < sizes.head_dim; ++p) {
          const auto at = static_cast<std::size_t>((token * sizes.heads + h) * sizes.head_dim + p);
          y[at] = in.d[head] * in.x[at];
          for (long n = 0; n < sizes.state; ++n) {
            double& value = state[static_cast<std::size_t>((h * sizes.head_dim + p) * sizes.state + n)];
            value = value * decay + dt * in.x[at] * in.b[static_cast<std::size_t>(group * sizes.state + n)];
            y[at] += value * in.c[static_cast<std::size_t>(group * sizes.state + n)];
          }
        }
      }
    }
  }
  return y;
}

ScanTensors scan_backward(const ScanSizes& sizes, const ScanTensors& in, const std::vector<double>& dy) {
  std::vector<double> states;
  scan(sizes, in, &states);
  const auto zeros_like = [](const std::vector<double>& values) {
    return std::vector<double>(values.size());
  };
  ScanTensors out{zeros_like(in.x),       zeros_like(in.b),     zeros_like(in.c), zeros_like(in.dt),
                  zeros_like(in.dt_bias), zeros_like(in.a_log), zeros_like(in.d)};
  const long head_size = sizes.head_dim * sizes.state;
  for (long sequence = 0; sequence < sizes.batch * sizes.heads; ++sequence) {
    const long h = sequence % sizes.heads;
    const auto head = static_cast<std::size_t>(h);
    const double a = -std::exp(in.a_log[head]);
    std::vector<double> dstate(static_cast<std::size_t>(head_size));  // gradient of the state after the token
    for (long t = sizes.sequence - 1; t >= 0; --t) {
      const long token = sequence / sizes.heads * sizes.sequence + t;
      const auto step = static_cast<std::size_t>(token * sizes.heads + h);
      const double raw = in.dt[step] + in.dt_bias[head];
      const double dt = raw > 30 ? raw : std::log1p(std::exp(raw));
      const double decay = in.begins(sizes.sequence, token) ? 0 : std::exp(dt * a);
      double ddt = 0;
      double ddecay = 0;
      for (long p = 0; p < sizes.head_dim; ++p) {
        const auto at = static_cast<std::size_t>((token * sizes.heads + h) * sizes.head_dim + p);
        out.d[head] += dy[at] * in.x[at];
        out.x[at] += dy[at] * in.d[head];
        for (long n = 0; n < sizes.state; ++n) {
          const auto key = static_cast<std::size_t>(
              (token * sizes.groups + h * sizes.groups / sizes.heads) * sizes.state + n);
          const double before =
              states[static_cast<std::size_t>((token * sizes.heads + h) * head_size + p * sizes.state + n)];
          double& gradient = dstate[static_cast<std::size_t>(p * sizes.state + n)];
          out.c[key] += dy[at] * (before * decay + dt * in.x[at] * in.b[key]);
          gradient += dy[at] * in.c[key];
          out.x[at] += gradient * dt * in.b[key];
          out.b[key] += gradient * dt * in.x[at];
          ddt += gradient * in.x[at] * in.b[key];
          ddecay += gradient * before;
          gradient *= decay;
        }
      }
      const double draw = (ddt + ddecay * decay * a) / (1 + std::exp(-raw));
      out.dt[step] = draw;
      out.dt_bias[head] += draw;
      out.a_log[head] += ddecay * decay * dt * a;  // d a / d a_log = a
    }
  }
  return out;
}

}  // namespace tetrad::oracle
