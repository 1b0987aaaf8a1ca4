// SPDX-License-Identifier: Apache-2.0
#pragma once
// What can be known of a run before it begins: what is certainly a mistake, and what is probably one. `train`
// and its --dry-run say the same because they ask here.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/data/dataset.h"
#include "tetrad/train/config.h"

namespace tetrad {

/// Throws Error (bad input) if precision.high_precision names a layer that the model does not have, or keeps
/// more blocks than there are.
void check_kept_layers(const Config& config);

/// Throws Error (bad input) if a layer's width is not a multiple of the Hadamard transform along it.
void check_transforms(const Config& config);

/// What a run takes from a source.
struct SourceUse {
  std::string name;
  std::int64_t tokens = 0;
  double epochs = 0;  //!< how often each token is trained on
  std::optional<std::int64_t> heldout_tokens;
};
std::vector<SourceUse> source_uses(const Dataset& dataset);

/// Sources that are never trained on, held-out tokens that are trained on, text that is repeated too often.
std::vector<std::string> data_warnings(const Dataset& dataset);

struct CheckpointSpace {
  std::int64_t each = 0;             //!< bytes of a checkpoint
  std::int64_t most = 0;             //!< of all that are there at once
  std::optional<std::int64_t> free;  //!< on the disk of the run's folder, which need not be there yet
};
CheckpointSpace checkpoint_space(const Config& config);
/// For the dry run; a run looks itself when it knows how large its checkpoints are.
std::vector<std::string> space_warnings(const CheckpointSpace& space);

}  // namespace tetrad
