// SPDX-License-Identifier: Apache-2.0
#include "tetrad/selftest/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>

namespace tetrad::selftest {
namespace {

std::vector<Result> results_of(const Check& check, Backend& backend, Backend& reference) {
  Stage stage(backend, reference, check.storage);
  check.run(stage);
  return stage.results();
}

std::string describe(const Difference& difference) {
  return fmt::format("{}[{}, {}] is {} instead of {}", difference.result, difference.row, difference.col,
                     difference.found, difference.expected);
}

std::string full_name(const Check& check) {
  std::string name = check.name;
  const auto add = [&](std::string_view text) {
    name += fmt::format("{}{}", name.empty() ? "" : ", ", text);
  };
  if (check.storage.dtype == DType::f32) add("f32");
  if (check.storage.odd) add("odd columns");
  return name;
}

}  // namespace

void add_for_all_storages(std::vector<Check>& checks, const std::string& operation, const std::string& name,
                          const std::function<void(Stage&)>& run) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const bool odd : {false, true})
      checks.push_back({operation, name, {dtype, odd}, run, dtype == DType::bf16 && !odd});
}

std::vector<Check> all_checks() {
  std::vector<Check> all;
  for (const auto& part : {memory_checks, layer_checks, attention_checks, mamba2_checks, optimizer_checks,
                           quantizer_checks, product_checks, model_checks})
    std::ranges::move(part(), std::back_inserter(all));
  return all;
}

std::size_t Report::checks() const {
  std::size_t sum = 0;
  for (const Group& group : groups) sum += group.checks;
  return sum;
}

std::optional<std::string> run_check(const Check& check, Backend& backend, Backend& reference,
                                     bool same_bytes) {
  try {
    const std::vector<Result> first = results_of(check, backend, reference);
    if (const auto difference = first_difference(results_of(check, reference, reference), first, same_bytes))
      return describe(*difference);
    const std::vector<Result> second = results_of(check, backend, reference);
    if (const auto difference = first_difference(first, second, true))
      return "the second time " + describe(*difference);
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

Report run(Backend& backend, Backend& reference, const std::vector<Check>& checks, const Options& options) {
  Report report;
  std::size_t done = 0;
  for (const Check& check : checks) {
    if (options.progress) options.progress({check.operation, done, checks.size()});
    ++done;
    if (options.brief && !check.brief) continue;
    auto group = std::ranges::find(report.groups, check.operation, &Group::operation);
    if (group == report.groups.end()) group = report.groups.insert(group, {check.operation});
    ++group->checks;
    const auto begin = std::chrono::steady_clock::now();
    if (const auto wrong = run_check(check, backend, reference, options.same_bytes))
      report.failures.push_back({check.operation, full_name(check), *wrong});
    else
      ++group->passed;
    group->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  if (options.progress) options.progress({"", checks.size(), checks.size()});
  return report;
}

}  // namespace tetrad::selftest
