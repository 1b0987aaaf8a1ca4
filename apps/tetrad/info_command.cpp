// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <CLI/Version.hpp>
#include <algorithm>

#include <nlohmann/json.hpp>

#include "command.h"
#include "tetrad/io/json_text.h"
#include "tetrad/ops/backend.h"
#include "tetrad/parallel/launch.h"
#include "tetrad/selftest/first_run.h"
#include "version.h"

namespace tetrad::app {
namespace {

std::vector<Property> build_properties() {
  return {{"version", kVersion}, {"build", kBuildId}, {"compiler", kCompiler}, {"build type", kBuildType}};
}

std::vector<Property> system_properties() {
  utsname name{};
  uname(&name);
  const double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return {{"system", fmt::format("{} {} {}", name.sysname, name.release, name.machine)},
          {"memory", fmt::format("{:.1f} GiB", bytes / double{1 << 30})}};
}

std::vector<Property> library_versions() {
  return {{"CLI11", CLI11_VERSION},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
          {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)}};
}

/// The backend, or why there is none.
struct BackendReport {
  std::string name;
  std::string unavailable;
  std::vector<Property> properties;
  std::vector<Property> kernels;
};

BackendReport report(const std::string& name, const std::function<std::unique_ptr<Backend>()>& open) {
  try {
    const std::unique_ptr<Backend> backend = open();
    std::vector<Property> properties = backend->properties();
    if (name != "cpu")
      properties.push_back(
          {"tested on this kind", selftest::is_known(*backend) ? "yes" : "no: run tetrad selftest"});
    return {name, "", properties, backend->kernels()};
  } catch (const Error& error) {
    return {name, error.what(), {}, {}};
  }
}

void print(const std::string& title, const std::vector<Property>& properties) {
  std::size_t width = 0;
  for (const Property& property : properties) width = std::max(width, property.name.size());
  fmt::print("{}\n", title);
  for (const auto& [name, value] : properties) fmt::print("  {:<{}} {}\n", name, width, value);
}

nlohmann::json named_values(const std::vector<Property>& properties) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, value] : properties) object[name] = value;
  return object;
}

void run(bool json) {
  const std::vector<BackendReport> backends = {report("cpu", [] { return make_cpu_backend(); }),
                                               report("cuda", [] { return make_cuda_backend(); })};
  if (json) {
    nlohmann::json object = {{"build", named_values(build_properties())},
                             {"system", named_values(system_properties())},
                             {"transports", named_values(transports())},
                             {"libraries", named_values(library_versions())}};
    for (const BackendReport& backend : backends) {
      nlohmann::json& entry = object["backends"][backend.name];
      entry = {{"available", backend.unavailable.empty()}};
      if (backend.unavailable.empty())
        entry.update(
            {{"properties", named_values(backend.properties)}, {"kernels", named_values(backend.kernels)}});
      else
        entry["reason"] = backend.unavailable;
    }
    fmt::print("{}\n", json_text(object, 2));
    return;
  }
  print("tetrad", build_properties());
  print("system", system_properties());
  for (const BackendReport& backend : backends) {
    if (!backend.unavailable.empty()) {
      fmt::print("backend {}: not available: {}\n", backend.name, backend.unavailable);
      continue;
    }
    print(fmt::format("backend {}", backend.name), backend.properties);
    print(fmt::format("kernels of {}", backend.name), backend.kernels);
  }
  print("transports between ranks", transports());
  print("libraries", library_versions());
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("info", "Show hardware, backends, the kernel of each operation, and versions");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object instead of text");
  set_examples(*command, "  tetrad info\n  tetrad info --json | jq .backends");
  command->callback([&action, json] {
    action = [json] {
      run(*json);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
