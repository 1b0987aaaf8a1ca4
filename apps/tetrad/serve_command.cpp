// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>

#include "command.h"
#include "model_commands.h"
#include "tetrad/serve/service.h"
#include "tetrad/train/signals.h"

namespace tetrad::app {
namespace {

struct ServeOptions {
  ModelOptions model;
  ServerOptions server;
  EngineOptions engine;
  std::string name;
  std::int64_t max_length = 0;
  double request_timeout = 30;
  double grace = 30;
};

std::chrono::milliseconds seconds(double count) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(count * 1000));
}

/// A model without tokenizer is served all the same, for clients that know its ids.
const Tokenizer* tokenizer_of(const LoadedModel& model) {
  try {
    return &model.tokenizer();
  } catch (const Error&) {
    return nullptr;
  }
}

/// Logs a line; a closed log is not an error.
void say(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

/// What is known of free memory: a device says it, and of this machine all that there is counts.
std::int64_t memory_for_sequences(const Backend& backend) {
  return backend.free_memory().value_or(static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                        ::sysconf(_SC_PAGESIZE));
}

/// Bytes that keys, values and states of all sequences at a time may take; refused if that cannot be.
std::int64_t checked_memory(const ServeOptions& options, const Decoder& decoder, std::int64_t max_length) {
  const std::int64_t one = decoder.session_bytes(max_length);
  const std::int64_t all = one * options.engine.batch;
  const std::int64_t available = memory_for_sequences(decoder.backend());
  TETRAD_CHECK(
      all <= available,
      "{} sequences of {} tokens may need {:.2f} GB for their keys, values and states, and there are "
      "{:.2f} GB: use a smaller --batch (one sequence: {:.2f} GB) or --max-length",
      options.engine.batch, max_length, static_cast<double>(all) / 1e9, static_cast<double>(available) / 1e9,
      static_cast<double>(one) / 1e9);
  return all;
}

void run(const ServeOptions& options) {
  ServerOptions server_options = options.server;
  server_options.request_timeout = seconds(options.request_timeout);
  HttpServer server(server_options);  // before minutes of loading: the port may be taken
  const std::unique_ptr<Backend> backend = choose_backend(options.model);
  LoadedModel model = load_model(options.model, *backend);
  CompletionContext context;
  context.model = options.name.empty() ? model.config().model.name : options.name;
  context.vocab = model.config().model.vocab;
  context.max_length = options.max_length > 0 ? options.max_length : model.sequence();
  context.max_tokens = std::max(context.max_tokens, context.max_length);
  context.tokenizer = tokenizer_of(model);
  const std::int64_t memory = checked_memory(options, model.decoder(), context.max_length);

  const StopSignals signals;
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads the log may go away
  Engine engine(model.decoder(), model.pass(), options.engine);
  Service service(engine, context, say);
  say(fmt::format(
      "{} from {}: prompt and continuation of up to {} tokens, {} sequences at a time{}, for which up "
      "to {:.1f} MB are needed",
      context.model, model.path().string(), context.max_length, options.engine.batch,
      engine.reads_together() ? "" : " (each by itself, since scales span a pass at this precision)",
      static_cast<double>(memory) / 1e6));
  fmt::print("listening on {}\n", server.url());
  std::fflush(stdout);
  const auto give_up = [&] {
    say("dropping the requests in progress");
    engine.stop();
  };
  const auto stop = [&] { return signals.received(); };
  server.run(service, stop, {seconds(options.grace), give_up});
  say("stopped");
}

void add_limits(CLI::App& command, ServeOptions& options) {
  command
      .add_option("--max-length", options.max_length,
                  "Tokens of a prompt and its continuation (default: the sequence length of training)")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 24))
      ->type_name("N");
  command.add_option("--batch", options.engine.batch, "Sequences computed at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option("--connections", options.server.connections,
                  "Largest number of connections; more are answered 503")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--max-body", options.server.limits.body, "Largest size of a request's body")
      ->check(CLI::Range(std::size_t{1024}, std::size_t{1} << 30))
      ->type_name("BYTES")
      ->capture_default_str();
  command.add_option("--timeout", options.request_timeout, "Seconds a client has to send its request")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command.add_option("--grace", options.grace, "Seconds that requests in progress get when the server stops")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Serve OpenAI's completions API over HTTP");
  add_model_options(*command, options->model);
  command
      ->add_option("--host", options->server.address.host,
                   "Address to listen on; 0.0.0.0 accepts connections from other machines")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->add_option("--port", options->server.address.port, "Port to listen on; 0 takes a free one")
      ->capture_default_str();
  command->add_option("--name", options->name, "Name of the model (default: model.name)");
  add_limits(*command, *options);
  set_examples(*command,
               "  tetrad serve run\n"
               "  tetrad serve run --port 8080 --max-length 2048 --precision nvfp4\n"
               "  curl localhost:8000/v1/completions -H 'Content-Type: application/json' \\\n"
               "       -d '{\"prompt\": \"class \", \"max_tokens\": 50, \"temperature\": 0.7}'\n"
               "  lm_eval --model local-completions --tasks lambada_openai --model_args \\\n"
               "       model=NAME,base_url=http://localhost:8000/v1/completions,tokenizer_backend=remote");
  command->callback([options, &action] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
