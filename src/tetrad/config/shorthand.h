// SPDX-License-Identifier: Apache-2.0
#pragma once
// The short forms that people write, expanded to the keys of the schema. Each file and override is expanded
// before it is merged, so that `model: llama-162m` in one and model.vocab=1000 in the next fit together:
//
//   model: NAME | path/config.json        {preset: …}, then the whole model it stands for
//   precision: nvfp4                      {recipe: nvfp4}
//   precision.scale: search               {forward: search, backward: search}; up, floor: {mxfp4: …}
//   precision.adaptive: true              scale: {forward: 4/6, backward: 4/6}, as 0.1.0 had it;
//                                         beside MXFP4 also mxfp4: floor
//   precision.high_precision: none        {first: 0, last: 0, match: [], fp8: []}
//   precision.rht: none | wgrad | […]     {gemms: …}
//   precision.operands: {fprop: {x: fp8}} {fprop.x: {format: fp8}}
//   data.sources: {code: path}            {code: {path: path}}
//   train.eval, train.checkpoint: 100     {every: 100}

#include "tetrad/config/node.h"

namespace tetrad::config {

/// Throws Error for an unknown preset or a config.json that is not a model of ours. Values of other wrong
/// kinds stay as they are, for the schema to refuse.
void expand_shorthand(Node& root);

}  // namespace tetrad::config
