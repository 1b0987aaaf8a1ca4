// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is compared: arms, each a precision, times seeds, learning rates and data mixes.

#include <cstdint>
#include <string>
#include <vector>

namespace tetrad {

/// Changes to the common configuration under a name: an arm's precision, or a mix of data.
struct NamedOverrides {
  std::string name;
  std::vector<std::string> overrides;  //!< "precision.rht=none"
  friend bool operator==(const NamedOverrides&, const NamedOverrides&) = default;
};

struct ComparePlan {
  std::vector<NamedOverrides> arms;  //!< the first is what the others are compared with
  std::int64_t seeds = 1;            //!< train.seed and those after it
  std::vector<double> lr_factors = {1};
  std::vector<NamedOverrides> mixes = {{}};  //!< one without a name: the data as configured
  double margin = 1.5;                       //!< percent of the reference's loss
  double alpha = 0.05;                       //!< largest probability of a wrong verdict
  friend bool operator==(const ComparePlan&, const ComparePlan&) = default;
};

/// `text` is a list of recipes ("bf16,nvfp4") or the name of a YAML file with `arms` and, if it likes, seeds,
/// lr_factors, mixes, margin and alpha. Throws Error (bad input).
ComparePlan read_plan(const std::string& text);

/// The same for the text of such a file; `name` stands for it in messages.
ComparePlan parse_plan(const std::string& yaml, const std::string& name);

/// YAML that parse_plan understands.
std::string to_yaml(const ComparePlan& plan);

}  // namespace tetrad
