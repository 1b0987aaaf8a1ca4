// SPDX-License-Identifier: Apache-2.0
#include "tetrad/selftest/first_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <string_view>

#include "tetrad/core/cache_folder.h"
#include "tetrad/core/error.h"
#include "tetrad/selftest/selftest.h"

namespace tetrad::selftest {
namespace {

/// All tests and a training run of every recipe have passed on these.
struct GpuKind {
  std::string_view device, capability;
};
constexpr std::array<GpuKind, 1> kKnownKinds = {{{"NVIDIA H200", "9.0"}}};

constexpr std::string_view kNative = "native";
constexpr std::string_view kExpanded = "expanded";

std::string property(const Backend& backend, std::string_view name) {
  for (const Property& property : backend.properties())
    if (property.name == name) return property.value;
  return "";
}

/// The outcome of an earlier time; nothing: there was none, or it cannot be read.
std::optional<std::string> recall(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  if (word == kNative || word == kExpanded) return word;
  return std::nullopt;
}

/// Where it cannot be written, the next run tests again.
void remember(const std::filesystem::path& file, std::string_view outcome) {
  if (file.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  std::ofstream(file) << outcome << '\n';
}

std::string first_failures(const Report& report) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, report.failures.size()); ++i)
    text += fmt::format("\n  {}: {}: {}", report.failures[i].operation, report.failures[i].check,
                        report.failures[i].what);
  if (report.failures.size() > kMost) text += fmt::format("\n  and {} more", report.failures.size() - kMost);
  return text;
}

}  // namespace

bool is_known(const Backend& backend) {
  return backend.name() == "cpu" || std::ranges::any_of(kKnownKinds, [&](const GpuKind& kind) {
           return property(backend, "device") == kind.device &&
                  property(backend, "compute capability") == kind.capability;
         });
}

bool may_use_native(const FirstRun& run) {
  const std::unique_ptr<Backend> native = run.open(true);
  if (is_known(*native)) return true;
  const std::string device = property(*native, "device");
  const std::filesystem::path file =
      run.folder.empty() ? std::filesystem::path()
                         : run.folder / cache_file_name(fmt::format("selftest-{}-{}-{}-{}", device,
                                                                    property(*native, "compute capability"),
                                                                    property(*native, "CUDA"), run.build));
  const auto warn = [&] {
    run.display.say(
        fmt::format("WARNING: the matrix units for narrow formats of {} failed the selftest and are not "
                    "used: operands are "
                    "expanded, which is slower and computes the same (tetrad selftest says what failed)",
                    device));
  };
  if (const auto outcome = recall(file)) {
    if (outcome == kExpanded) warn();
    return outcome == kNative;
  }
  run.display.say(
      fmt::format("this build has not been run on {} before: the short selftest comes first, once", device));
  const auto test = [&](Backend& backend) {
    return selftest::run(backend, run.reference, run.checks, {.brief = true});
  };
  if (const Report report = test(*native); report.passed()) {
    run.display.say(fmt::format("selftest: all {} checks passed", report.checks()));
    remember(file, kNative);
    return true;
  } else {  // NOLINT(readability-else-after-return): report is of the `if`
    run.display.say(fmt::format("selftest: {} of {} checks failed:{}", report.failures.size(),
                                report.checks(), first_failures(report)));
  }
  if (const Report report = test(*run.open(false)); !report.passed())
    throw Error(
        fmt::format(
            "{} does not compute what it should, so nothing is trained on it:{}\nReport this with the "
            "output of tetrad selftest; run.backend=cpu trains on the CPU, and run.selftest=off "
            "on the GPU all the same",
            device, first_failures(report)),
        ExitCode::failure);
  warn();
  remember(file, kExpanded);
  return false;
}

}  // namespace tetrad::selftest
