// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the tokens come from, as one would write it in a configuration.

#include <map>
#include <string>
#include <vector>

namespace tetrad {

/// A token file: `path` without .bin/.idx. Held-out tokens come from `heldout`, if there is one.
struct SourceConfig {
  std::string path;
  std::string heldout;
  friend bool operator==(const SourceConfig&, const SourceConfig&) = default;
};

/// Until this fraction of the token budget, samples come from these sources in these proportions.
struct DataPhase {
  double until = 1;
  std::map<std::string, double> mix;  //!< by source name; need not sum to 1
  friend bool operator==(const DataPhase&, const DataPhase&) = default;
};

struct DataConfig {
  std::string tokenizer;  //!< "bytes", a tokenizer.json, or empty: what the token files say
  std::map<std::string, SourceConfig> sources;
  std::vector<DataPhase> phases;  //!< empty: all sources in proportion to their size
  bool document_mask = false;     //!< nothing crosses the documents that are packed into a sequence
  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

}  // namespace tetrad
