// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs every operation of a backend on the same data as the CPU, twice, and says where they differ: byte for
// byte where that is promised, and to a stated tolerance elsewhere.

#include <functional>
#include <string>
#include <vector>

#include "tetrad/selftest/checks.h"

namespace tetrad::selftest {

struct Failure {
  std::string operation;
  std::string check;
  std::string what;  //!< the first difference, for people
};

struct Progress {
  std::string_view operation;
  std::size_t done, total;
};

struct Options {
  bool brief = false;       //!< the short form: what training uses
  bool same_bytes = false;  //!< no tolerances: between instruction sets of a CPU everything is promised
  std::function<void(const Progress&)> progress = {};
};

/// The checks of one operation.
struct Group {
  std::string operation;
  std::size_t checks = 0;
  std::size_t passed = 0;
  double seconds = 0;
};

struct Report {
  std::vector<Group> groups;  //!< in the order of all_checks()
  std::vector<Failure> failures;

  std::size_t checks() const;
  bool passed() const { return failures.empty(); }
};

/// `reference` is a CPU.
Report run(Backend& backend, Backend& reference, const std::vector<Check>& checks,
           const Options& options = {});

/// One check; what is wrong, or nothing.
std::optional<std::string> run_check(const Check& check, Backend& backend, Backend& reference,
                                     bool same_bytes);

}  // namespace tetrad::selftest
