// SPDX-License-Identifier: Apache-2.0
// The selftest finds whatever is wrong with one output of one operation, with the tolerances that a GPU gets,
// and names the operation. There is no operation in ops/backend.h that it does not look at.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>
#include <string_view>

#include "selftest/faulty_backend.h"
#include "support/cpu.h"
#include "support/files.h"
#include "tetrad/core/error.h"
#include "tetrad/selftest/selftest.h"

namespace tetrad::testing::planted_faults_test {
namespace {

/// What Backend has besides operations: nothing of it writes results, but make_reader(), whose reader is of
/// checkpoints. What join_lane() does is seen in what copy_in_lane() has written.
constexpr auto kNoOperations = std::to_array<std::string_view>({"allocate_on_host",
                                                                "join_lane",
                                                                "free_host_memory",
                                                                "use_host_moments",
                                                                "make_timeline",
                                                                "make_reader",
                                                                "name",
                                                                "properties",
                                                                "kernels",
                                                                "bits_depend_on",
                                                                "device_id",
                                                                "keep_choices_in",
                                                                "stream",
                                                                "threads",
                                                                "allocate",
                                                                "synchronize",
                                                                "begin_range",
                                                                "end_range",
                                                                "peak_memory",
                                                                "restart_peak",
                                                                "free_memory",
                                                                "energy",
                                                                "busy",
                                                                "preferred_order",
                                                                "has_stacks",
                                                                "pack",
                                                                "use_attention_engine"});

/// "attention backward", "quantize pair", "gemm", …: every virtual function of Backend.
std::set<std::string> operations_of_the_header() {
  const std::string text = read_file(TETRAD_BACKEND_HEADER);
  static const std::regex function(R"(virtual [^;{}~]*? (\w+)\(([^)]*)\))");
  static const std::regex direction(R"(const \w+(Forward|Backward|Decode)& op)");
  std::set<std::string> operations;
  for (std::sregex_iterator match(text.begin(), text.end(), function), end; match != end; ++match) {
    std::string name = (*match)[1];
    const std::string arguments = (*match)[2];
    if (std::ranges::find(kNoOperations, name) != kNoOperations.end()) continue;
    std::smatch found;
    if (std::regex_search(arguments, found, direction)) {
      std::string word = found[1];
      word[0] = static_cast<char>(std::tolower(word[0]));
      name += " " + word;
    }
    if (arguments.find("QuantizeTask") != std::string::npos) name += " pair";
    operations.insert(name);
  }
  return operations;
}

#ifdef __SANITIZE_ADDRESS__
constexpr int kEvery = 6;  // of an operation's checks: they run the same code, and take minutes
#else
constexpr int kEvery = 1;
#endif

std::string operation_of(const std::string& fault) { return fault.substr(0, fault.find(": ")); }

/// For each fault, the checks of its operation that meet it.
std::map<std::string, std::vector<selftest::Check>> faults() {
  std::map<std::string, std::vector<selftest::Check>> all;
  std::map<std::string, int> seen;
  FaultyBackend backend(cpu_backend());
  for (const selftest::Check& check : selftest::all_checks()) {
    if (check.operation == "linear layer" || check.operation == "training step")
      continue;  // of all operations
    if (seen[check.operation]++ % kEvery != 0) continue;
    backend.possible.clear();
    selftest::Stage stage(backend, cpu_backend(), check.storage);
    check.run(stage);
    stage.results();
    for (const std::string& fault : backend.possible)
      if (operation_of(fault) == check.operation) all[fault].push_back(check);
  }
  return all;
}

TEST(PlantedFaults, EachIsFoundInEveryOperation) {
  const auto all = faults();
  std::set<std::string> operations;
  FaultyBackend backend(cpu_backend());
  for (const auto& [fault, checks] : all) {
    operations.insert(operation_of(fault));
    backend.planted = fault;
    EXPECT_TRUE(
        std::ranges::any_of(checks,
                            [&](const selftest::Check& check) {
                              return selftest::run_check(check, backend, cpu_backend(), false).has_value();
                            }))
        << "planted and not found: " << fault;
  }
  EXPECT_EQ(operations, operations_of_the_header())
      << "an operation of ops/backend.h needs checks in selftest/ and faults in faulty_backend.cpp";
}

TEST(PlantedFaults, TheOperationIsNamedWithThePlaceAndBothValues) {
  FaultyBackend backend(cpu_backend());
  backend.planted = "add_row: out, F32";
  std::vector<selftest::Check> checks = selftest::layer_checks();
  const selftest::Report report = selftest::run(backend, cpu_backend(), checks);
  ASSERT_FALSE(report.passed());
  for (const selftest::Failure& failure : report.failures) EXPECT_EQ(failure.operation, "add_row");
  const std::string& what = report.failures.front().what;
  EXPECT_TRUE(std::regex_match(what, std::regex(R"(out\[\d+, \d+\] is \S+ instead of \S+)"))) << what;
  for (const selftest::Group& group : report.groups)
    EXPECT_EQ(group.passed == group.checks, group.operation != "add_row") << group.operation;
}

/// Too small a difference for the tolerance, but not the same bits again.
TEST(PlantedFaults, WhatDoesNotRepeatIsFound) {
  FaultyBackend backend(cpu_backend());
  backend.planted = "rms_norm forward: inverse_rms, F32";
  backend.flickers = true;
  const selftest::Report report = selftest::run(backend, cpu_backend(), selftest::layer_checks());
  ASSERT_FALSE(report.passed());
  EXPECT_EQ(report.failures.front().operation, "rms_norm forward");
  EXPECT_TRUE(report.failures.front().what.starts_with("the second time inverse_rms"))
      << report.failures.front().what;
}

TEST(PlantedFaults, AnOperationThatThrowsIsAFailure) {
  const selftest::Check check{"add", "", {}, [](selftest::Stage&) { throw Error("no kernel"); }};
  EXPECT_EQ(selftest::run_check(check, cpu_backend(), cpu_backend(), false), "no kernel");
}

TEST(PlantedFaults, AHealthyBackendPassesTheShortForm) {
  FaultyBackend backend(cpu_backend());
  const selftest::Report report =
      selftest::run(backend, cpu_backend(), selftest::all_checks(), {.brief = true, .same_bytes = true});
  for (const selftest::Failure& failure : report.failures)
    ADD_FAILURE() << failure.operation << ": " << failure.check << ": " << failure.what;
  std::set<std::string> tested;
  for (const selftest::Group& group : report.groups) tested.insert(group.operation);
  for (const std::string& operation : operations_of_the_header())
    EXPECT_TRUE(tested.contains(operation)) << "the short form leaves out " << operation;
}

}  // namespace
}  // namespace tetrad::testing::planted_faults_test
