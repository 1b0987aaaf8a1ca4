// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the inputs of linear layers amount to, for the input scales of serving formats.

#include <cstdint>
#include <string>

#include "tetrad/eval/loaded_model.h"
#include "tetrad/interchange/export_nvfp4.h"

namespace tetrad {

struct CalibrationOptions {
  /// A token file (NAME of NAME.bin and NAME.idx) or a text file; empty: the run's own held-out tokens, or,
  /// where there are none, those that it was trained on.
  std::string data;
  std::int64_t sequences = 32;
  Progress progress = {};  //!< in sequences
};

/// Runs the model forward over the data and notes the largest magnitude that each linear layer with NVFP4
/// inputs was given. Throws Error (bad input) if there is no data, or too little for one sequence.
InputAmax calibrate(LoadedModel& model, const CalibrationOptions& options);

}  // namespace tetrad
