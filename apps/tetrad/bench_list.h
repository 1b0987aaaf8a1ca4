// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `tetrad bench` can measure, each with its options.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "measure.h"
#include "tetrad/ops/backend.h"
#include "tetrad/recipe/config.h"

namespace tetrad::app {

struct BenchOptions {
  std::string size = {};
  std::string dtype = "bf16";
  std::string backend = "auto";
  std::string model = "quickstart";
  std::vector<std::string> recipes = {kRecipeNames.begin(), kRecipeNames.end()};
  std::int64_t batch = 16;
  std::int64_t microbatches = 1;
  std::int64_t sequence = 256;
  std::string recompute = "none";
  std::string memory = "device";
  std::vector<std::string> settings = {};  //!< of the recipes other than bf16, and of memory
  double gigabytes = 1;
  double millions = 64;  //!< of parameters
  std::string folder = ".";
  int beside = 0;
  std::vector<std::int64_t> clients = {1, 4, 16};
  std::int64_t prompt = 16;
  std::int64_t tokens = 64;
  bool profile = false;
  std::vector<std::string> paths = {"/usr/include/c++"};
  std::string tokenizer = {};  //!< empty: learn one
  std::int64_t vocab = 32768;
  int repeats = 15;
  int threads = 0;
  bool json = false;
};

/// One benchmark: what it is called, what it needs and what it says in --help.
struct Benchmark {
  const char* name;
  const char* help;
  BenchOptions defaults;
  void (*add_options)(CLI::App&, BenchOptions&);
  std::string (*title)(const BenchOptions&);  //!< what is measured, behind the name
  void (*run)(Backend&, const BenchOptions&, const bench::Report&);
  const char* examples;
};

const std::vector<Benchmark>& benchmarks();

}  // namespace tetrad::app
