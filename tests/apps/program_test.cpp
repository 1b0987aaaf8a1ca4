// SPDX-License-Identifier: Apache-2.0
// The program as a whole: help, usage errors, info, bench.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/process.h"

namespace tetrad::testing {
namespace {

TEST(Program, EveryCommandExplainsItselfWithAnExample) {
  const std::vector<std::vector<std::string>> commands = {
      {"info"}, {"quantize"}, {"bench"}, {"bench", "quantize"}, {"bench", "gemm"}};
  for (std::vector<std::string> command : commands) {
    const std::string name = "tetrad " + command[0];
    command.emplace_back("--help");
    const Outcome run = run_tetrad(command);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_NE(run.out.find("Examples:"), std::string::npos) << name;
    EXPECT_NE(run.out.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(run_tetrad({"--help"}).exit_code, 0);
  EXPECT_NE(run_tetrad({"--version"}).out.find("tetrad 0."), std::string::npos);
}

TEST(Program, BadUsageIsExitCodeTwoAndSaysWhy) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"frobnicate"},
                                             {"quantize", "--format", "fp3"},
                                             {"quantize", "a", "-o", "b", "--hadamard", "12"},
                                             {"quantize", "a", "-o", "b", "--threads", "0"},
                                             {"bench"},
                                             {"bench", "quantize", "--size", "12x12"},
                                             {"bench", "quantize", "--size", "64x"},
                                             {"bench", "gemm", "--size", "64x64"},
                                             {"bench", "gemm", "--size", "64x64x-64"}}) {
    const Outcome run = run_tetrad(arguments);
    EXPECT_EQ(run.exit_code, 2) << ::testing::PrintToString(arguments);
    EXPECT_NE(run.err, "") << ::testing::PrintToString(arguments);
    EXPECT_EQ(run.out, "") << ::testing::PrintToString(arguments);
  }
}

TEST(Program, InfoNamesTheKernelOfEveryOperation) {
  const Outcome run = run_tetrad({"info", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto report = nlohmann::json::parse(run.out);
  EXPECT_TRUE(report["backends"]["cpu"]["available"].get<bool>());
  for (const char* operation : {"quantize", "dequantize", "gemm"})
    EXPECT_TRUE(report["backends"]["cpu"]["kernels"].contains(operation)) << operation;
  EXPECT_TRUE(report["backends"].contains("cuda"));
  EXPECT_TRUE(report["backends"]["cpu"]["properties"].contains("instruction set"));
  EXPECT_NE(run_tetrad({"info"}).out.find("instruction set"), std::string::npos);
}

TEST(Program, ModelsAreListedWithWhatTheyNeed) {
  const Outcome text = run_tetrad({"models"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  const Outcome run = run_tetrad({"models", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto models = nlohmann::json::parse(run.out)["models"];
  ASSERT_GE(models.size(), 10U);
  for (const auto& model : models) {
    // What is listed can be used: a configuration that names it resolves.
    const auto name = model["name"].get<std::string>();
    EXPECT_NE(text.out.find("\n" + name + " "), std::string::npos) << name;
    EXPECT_GT(model["training_bytes"], 16 * model["parameters"].get<std::int64_t>()) << name;
    EXPECT_EQ(model["family"], name.find("hybrid") != name.npos || name.find("nemotron") != name.npos
                                   ? "Mamba-2 hybrid"
                                   : "Llama");
  }
}

TEST(Program, BenchmarksReportFiguresBesideTheirCeiling) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"bench", "quantize", "--size", "64x128", "--repeats", "1", "--json"},
        std::vector<std::string>{"bench", "gemm", "--size", "64x64x128", "--repeats", "1", "--json"}}) {
    const Outcome run = run_tetrad(arguments);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const auto report = nlohmann::json::parse(run.out);
    ASSERT_FALSE(report["figures"].empty());
    for (const auto& figure : report["figures"]) {
      EXPECT_GT(figure["value"].get<double>(), 0.0);
      EXPECT_GT(figure["ceiling"].get<double>(), 0.0);
      EXPECT_DOUBLE_EQ(figure["ratio"].get<double>(),
                       figure["value"].get<double>() / figure["ceiling"].get<double>());
    }
  }
}

}  // namespace
}  // namespace tetrad::testing
