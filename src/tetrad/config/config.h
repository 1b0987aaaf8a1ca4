// SPDX-License-Identifier: Apache-2.0
#pragma once
// Configuration: YAML files merged left to right, then key=value overrides, into the structs of
// train/config.h. The defaults stand there; names, ranges and help of the keys stand in schema.h.
//
// Every function here that reads throws Error (bad input) with the place (file:line), the full key and what
// to do.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tetrad/train/config.h"

namespace tetrad {

/// Where the values came from: `run.yaml:12`, `command line: "train.steps=3"`, `preset llama-162m`. A key
/// that is not here has its default.
struct Provenance {
  std::map<std::string, std::string> origins;  //!< by dotted key
};

/// Reads, merges and binds; says nothing about whether the values fit together (validate). Relative paths are
/// those of the working directory or, if nothing is there, of the file that names them.
Config load_config(std::span<const std::string> files, std::span<const std::string> overrides,
                   Provenance* provenance = nullptr);

/// The same for YAML text at hand, such as the resolved configuration in a checkpoint. `name` stands for the
/// file in messages.
Config parse_config(std::string_view yaml, std::string_view name, std::span<const std::string> overrides = {},
                    Provenance* provenance = nullptr);

/// Throws unless a run can start with these values: ranges, and what must fit together. Files are not looked
/// at.
void validate(const Config& config);
/// The same for precision alone, of a model that need not be ours.
void validate(const PrecisionConfig& precision);

/// Complete YAML, always in the same order; parse_config gives an equal Config back.
std::string to_yaml(const Config& config);

/// One line per value: "train.steps = 300  # run.yaml:12".
std::string explain(const Config& config, const Provenance& provenance);

/// Every value with its dotted key, as YAML on one line, in the order of the schema.
std::vector<std::pair<std::string, std::string>> leaf_texts(const Config& config);

/// Dotted keys whose values differ, in the order of the schema.
std::vector<std::string> differences(const Config& a, const Config& b);

/// One line per key that there is: its default and what it means.
std::string schema_help();

}  // namespace tetrad
