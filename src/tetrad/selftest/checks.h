// SPDX-License-Identifier: Apache-2.0
#pragma once
// The list of checks. Each runs one operation on a Stage; a file has those of a few related operations.

#include <functional>
#include <string>
#include <vector>

#include "tetrad/selftest/stage.h"

namespace tetrad::selftest {

struct Check {
  std::string operation;  //!< as ops/backend.h has it: "attention backward"
  std::string name;       //!< what is special about this one
  Storage storage;
  std::function<void(Stage&)> run;
  bool brief = false;  //!< part of the short form
};

/// The same body on activations as training has them, and in f32 and on rows that nothing is aligned to,
/// where kernels have other forms. The short form has the first.
void add_for_all_storages(std::vector<Check>& checks, const std::string& operation, const std::string& name,
                          const std::function<void(Stage&)>& run);

std::vector<Check> memory_checks();
std::vector<Check> layer_checks();
std::vector<Check> attention_checks();
std::vector<Check> mamba2_checks();
std::vector<Check> optimizer_checks();
std::vector<Check> quantizer_checks();
std::vector<Check> product_checks();
std::vector<Check> model_checks();

/// All of the above, in this order.
std::vector<Check> all_checks();

}  // namespace tetrad::selftest
