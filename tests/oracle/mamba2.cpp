#include "oracle/mamba2.h"

#include <cmath>

namespace tetrad::oracle {

std::vector<double> causal_conv(long batch, long sequence, long channels, long kernel,
                                const std::vector<double>& x, const std::vector<double>& weight,
                                const std::vector<double>& bias) {
  std::vector<double> out;
  for (long b = 0; b < batch; ++b)
    for (long t = 0; t < sequence; ++t)
      for (long c = 0; c < channels; ++c) {
        double sum = bias[static_cast<std::size_t>(c)];
        for (long j = 0; j < kernel; ++j) {
          const long s = t - kernel + 1 + j;
          if (s >= 0)
            sum += weight[static_cast<std::size_t>(c * kernel + j)] *
                   x[static_cast<std::size_t>((b * sequence + s) * channels + c)];
        }
        out.push_back(sum / (1 + std::exp(-sum)));
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
        const double decay = std::exp(-dt * std::exp(in.a_log[head]));
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

}  // namespace tetrad::oracle
