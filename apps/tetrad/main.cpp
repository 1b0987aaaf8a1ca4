// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "command.h"
#include "number_checks.h"
#include "terminal.h"
#include "usage_hint.h"
#include "version.h"

namespace tetrad::app {

void add_threads_option(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "CPU threads (default: TETRAD_THREADS, or else all cores)")
      ->check(whole_number(1))
      ->type_name("N");
}

void add_backend_option(CLI::App& command, std::string& backend, const std::string& help) {
  CLI::Option* option = command.add_option("--backend", backend, help)
                            ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
                            ->type_name("B");
  if (!backend.empty()) option->capture_default_str();
}

void set_examples(CLI::App& command, const std::string& examples) {
  command.footer("\nExamples:\n" + examples);
}

}  // namespace tetrad::app

namespace {

int run(int argc, char** argv) {
  CLI::App app("Tetrad: pretraining language models in NVFP4, with exact numerics.", "tetrad");
  app.set_version_flag("--version", fmt::format("tetrad {} ({})", tetrad::kVersion, tetrad::kBuildId));
  app.require_subcommand(1);
  app.footer(
      "\nExit codes: 0 done; 2 bad usage, configuration or input; 3 training diverged; 4 no usable "
      "checkpoint;\n"
      "5 stopped by a signal after a checkpoint; 1 anything else.\n"
      "Start with:  make quickstart");
  tetrad::app::Action action;
  tetrad::app::add_info(app, action);
  tetrad::app::add_selftest(app, action);
  tetrad::app::add_models(app, action);
  tetrad::app::add_quantize(app, action);
  tetrad::app::add_data(app, action);
  tetrad::app::add_tokenizer(app, action);
  tetrad::app::add_train(app, action);
  tetrad::app::add_eval(app, action);
  tetrad::app::add_score(app, action);
  tetrad::app::add_generate(app, action);
  tetrad::app::add_compare(app, action);
  tetrad::app::add_inspect(app, action);
  tetrad::app::add_export(app, action);
  tetrad::app::add_import(app, action);
  tetrad::app::add_serve(app, action);
  tetrad::app::add_bench(app, action);
  tetrad::app::add_plot(app, action);
  tetrad::app::add_man(app, action);
  tetrad::app::add_completion(app, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string hint = error.get_exit_code() == 0 ? "" : tetrad::app::usage_hint(app);
        !hint.empty())
      tetrad::fail("{}", hint);
    // 0 for --help and --version; everything else is bad usage whatever CLI11 numbers it.
    return app.exit(error) == 0 ? 0 : static_cast<int>(tetrad::ExitCode::bad_input);
  }
  const tetrad::ExitCode exit_code = action();
  std::fflush(stdout);
  return static_cast<int>(std::ferror(stdout) != 0 ? tetrad::ExitCode::failure : exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  tetrad::app::open_standard_streams();
  const auto complain = [](std::string_view what) {
    tetrad::app::write_to_stderr(fmt::format("tetrad: {}\n", what));
  };
  try {
    return run(argc, argv);
  } catch (const tetrad::Error& error) {
    complain(error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::exception& error) {
    complain(fmt::format("internal error: {}", error.what()));
  }
  return static_cast<int>(tetrad::ExitCode::failure);
}
