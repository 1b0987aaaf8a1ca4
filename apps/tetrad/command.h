// SPDX-License-Identifier: Apache-2.0
#pragma once
// A subcommand adds its options to the parser and leaves behind what to run if it was chosen.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "tetrad/core/error.h"

namespace tetrad::app {

/// What the chosen subcommand does, and the exit code it ends with. Throws Error.
using Action = std::function<ExitCode()>;

void add_info(CLI::App& app, Action& action);
void add_selftest(CLI::App& app, Action& action);
void add_models(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_score(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_plot(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_tokenizer(CLI::App& app, Action& action);
void add_man(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);

/// --threads, the same everywhere; `threads` stays 0, the default, without it.
void add_threads_option(CLI::App& command, int& threads);

/// --backend, the same everywhere. Without it `backend` stays what it is.
void add_backend_option(CLI::App& command, std::string& backend,
                        const std::string& help = "auto, cpu or cuda");

/// Examples below the options of `tetrad COMMAND --help`.
void set_examples(CLI::App& command, const std::string& examples);

}  // namespace tetrad::app
