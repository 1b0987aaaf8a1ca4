// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW over all parameters of a model, with clipping by the global norm. Where ranks share the weights, each
// updates its own and has the moments of those alone.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tetrad/model/parameter.h"
#include "tetrad/ops/backend.h"
#include "tetrad/optim/config.h"

namespace tetrad {

/// How moments are stored, but for those that moment_type() keeps in f32.
DType moment_storage(const OptimConfig& config);

class AdamWOptimizer {
 public:
  /// `host_moments`: bytes of the moments, or a little more, that lie on the host instead of on the device.
  /// `seed`: of stochastic rounding.
  AdamWOptimizer(Backend& backend, const std::vector<std::unique_ptr<Parameter>>& parameters,
                 OptimConfig config, std::int64_t host_moments = 0, std::uint64_t seed = 0);

  /// What the gradients look like before they are used, those of all ranks.
  struct GradientReport {
    double norm = 0;               //!< norm of all gradients together
    std::string first_non_finite;  //!< name of the first parameter with a NaN or infinity; empty: none
  };
  GradientReport inspect();

  /// One update. `step` counts from 1; `norm` is inspect()'s, for clipping.
  void step(std::int64_t step, double learning_rate, double norm);

  struct Moments {
    Tensor first, second;  //!< as large as the parameter's value; f32 or BF16
  };
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  Moments& moments(std::size_t parameter) { return moments_[parameter]; }
  /// The random bits with which a parameter's moments are rounded to BF16 after a step.
  MomentRounding rounding(std::size_t parameter, std::int64_t step) const {
    return {seed_, step, static_cast<std::uint32_t>(parameter)};
  }

 private:
  /// Sums of the squares of gradients, by parameter.
  std::vector<double> squares();
  /// What every rank has found, in the order of its `summed_`.
  std::vector<std::vector<double>> of_all_ranks(const std::vector<double>& own) const;

  Backend& backend_;
  const std::vector<std::unique_ptr<Parameter>>& parameters_;
  OptimConfig config_;
  std::uint64_t seed_;
  std::vector<Moments> moments_;
  std::vector<AdamWTensor> tensors_;  //!< what this rank updates
  std::vector<AdamWTensor> summed_;   //!< the gradients among them, piece by piece
  WeightShards* shards_ = nullptr;    //!< of the parameters; null: this rank has everything
};

}  // namespace tetrad
