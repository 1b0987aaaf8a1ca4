// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tetrad/data/synth.h"

namespace tetrad::app {

struct PrepareArguments {
  std::vector<std::string> paths;
  std::vector<std::string> include;
  std::string output;
  std::string tokenizer = "bytes";
  double heldout = 0.02;
  bool special = false;  //!< the tokenizer's template around every document
  int threads = 0;
  bool json = false;
};

struct SynthArguments {
  SynthConfig config;
  std::string output;
  std::int64_t tokens = 1'000'000;
  double heldout = 0.02;
  bool json = false;
};

struct InspectArguments {
  std::string name;
  std::int64_t vocab = 0;  //!< 0: what the file says
  int threads = 0;
  bool json = false;
};

struct ConvertArguments {
  std::vector<std::string> inputs;
  std::string output;
  std::string tokenizer;
  std::int64_t vocab = 0;          //!< 0: find out
  std::int64_t document_end = -1;  //!< -1: none
  int threads = 0;
  bool json = false;
};

void data_prepare(const PrepareArguments& arguments);
void data_synth(const SynthArguments& arguments);
void data_convert(const ConvertArguments& arguments);
void data_inspect(const InspectArguments& arguments);

}  // namespace tetrad::app
