// SPDX-License-Identifier: Apache-2.0
#pragma once
// The optimizer, as one would write it in a configuration.

#include <string>

namespace tetrad {

struct OptimConfig {
  double lr = 3e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;            //!< global gradient norm; 0 = no clipping
  std::string moments = "f32";  //!< f32 | bf16: how those of linear layers' weights are stored
  friend bool operator==(const OptimConfig&, const OptimConfig&) = default;
};

}  // namespace tetrad
