// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "backend_choice.h"
#include "bench_list.h"
#include "command.h"
#include "number_checks.h"
#include "tetrad/core/threads.h"
#include "tetrad/io/json_text.h"

namespace tetrad::app {
namespace {

/// Prints figures as they come, or collects them for one JSON object.
class Reporter {
 public:
  Reporter(Backend& backend, const std::string& title, bool json) : json_(json) {
    const bool on_cpu = backend.name() == "cpu";
    const std::string hardware = hardware_name(backend);
    object_ = {{"benchmark", title},
               {"backend", backend.name()},
               {"hardware", hardware},
               {"figures", nlohmann::json::array()}};
    if (on_cpu) object_["threads"] = backend.threads().count();
    heading_ = fmt::format("{}, {}{}\n", title, hardware,
                           on_cpu ? fmt::format(", {} threads", backend.threads().count()) : "");
  }

  void operator()(const bench::Figure& figure) {
    if (!json_) {
      if (object_["figures"].empty())  // not before it is clear that there will be figures
        fmt::print("{}{:<52}  {:>12}  {:>12}  {:>6}\n", heading_, "", "measured", "ceiling", "ratio");
      fmt::print("{:<52}  {:>7.2f} {}  {:>7.2f} {}  {:>5.3f} of {}\n", figure.name, figure.value, figure.unit,
                 figure.ceiling, figure.unit, figure.ratio(), figure.ceiling_name);
      std::fflush(stdout);
    }
    object_["figures"].push_back({{"name", figure.name},
                                  {"unit", figure.unit},
                                  {"value", figure.value},
                                  {"ceiling", figure.ceiling},
                                  {"ceiling_name", figure.ceiling_name},
                                  {"ratio", figure.ratio()}});
  }

  void finish(const Backend& backend) {
    const std::int64_t memory = backend.peak_memory();
    object_["peak_memory_bytes"] = memory;
    if (json_)
      fmt::print("{}\n", json_text(object_, 2));
    else
      fmt::print("peak memory {:.2f} GB\n", static_cast<double>(memory) * 1e-9);
  }

 private:
  nlohmann::json object_;
  std::string heading_;
  bool json_;
};

void add_common_options(CLI::App& command, BenchOptions& options) {
  add_backend_option(command, options.backend);
  command.add_option("--repeats", options.repeats, "Timed runs; the median counts")
      ->check(whole_number(1, 100000))
      ->capture_default_str();
  command.add_flag("--json", options.json, "Print one JSON object instead of text");
  add_threads_option(command, options.threads);
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed, each figure next to its ceiling in the same run");
  command->require_subcommand(1);
  set_examples(*command, "  tetrad bench quantize\n  tetrad bench gemm --size 2048x2048x2048 --json");
  for (const Benchmark& benchmark : benchmarks()) {
    CLI::App* sub = command->add_subcommand(benchmark.name, benchmark.help);
    auto options = std::make_shared<BenchOptions>(benchmark.defaults);
    benchmark.add_options(*sub, *options);
    add_common_options(*sub, *options);
    set_examples(*sub, benchmark.examples);
    sub->callback([&action, &benchmark, options] {
      action = [&benchmark, options] {
        const std::unique_ptr<Backend> chosen = choose_backend(options->backend, options->threads);
        Backend& backend = *chosen;
        Reporter reporter(backend, fmt::format("{} {}", benchmark.name, benchmark.title(*options)),
                          options->json);
        benchmark.run(backend, *options, std::ref(reporter));
        reporter.finish(backend);
        return ExitCode::ok;
      };
    });
  }
}

}  // namespace tetrad::app
