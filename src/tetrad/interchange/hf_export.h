// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Hugging Face model that was trained layer by layer with precisions of ours (the Python package), in the
// formats of others.

#include <map>
#include <string>

#include "tetrad/interchange/export.h"
#include "tetrad/interchange/tensor_table.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/linear_precision.h"

namespace tetrad {

/// A linear layer that the model has of ours.
struct HfLayer {
  LinearPrecision precision;
  float input_amax = -1;  //!< largest |x| that it was given; negative: unknown
};

struct HfExport {
  std::string format;  //!< hf, modelopt, compressed-tensors or gguf
  /// Servers make one matrix of q, k and v, and of gate and up, with one tensor scale; layers that were
  /// trained apart have one each. true: such weights are quantized anew, together.
  bool joined_scales = false;
  ExportOptions options;
};

/// `folder` describes the model (hf_source.h) and `tensors` are its weights; `layers` are ours, by the names
/// of their modules, and all others stay as they are. The codes are those of each layer's forward pass.
/// Throws Error (bad input) for what the format cannot hold.
ExportSummary export_hf_model(const std::filesystem::path& folder, const TensorTable& tensors,
                              const std::map<std::string, HfLayer>& layers, const std::filesystem::path& out,
                              const HfExport& what, Backend& cpu);

}  // namespace tetrad
