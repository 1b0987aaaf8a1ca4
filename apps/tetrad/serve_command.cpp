// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "command.h"
#include "model_commands.h"
#include "number_checks.h"
#include "tetrad/http/server.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/serve/chat_template.h"
#include "tetrad/serve/service.h"
#include "tetrad/train/signals.h"
#include "version.h"

namespace tetrad::app {
namespace {

constexpr const char* kKeyVariable = "TETRAD_API_KEY";

constexpr const char* kAnyTemplate = "auto";  //!< that of the tokenizer

struct ServeOptions {
  ServeOptions() {
    server.address.port = 8000;
    server.any_name_from_outside = false;
  }

  ModelOptions model;
  ServerOptions server;
  EngineOptions engine;
  std::string name;
  std::string chat_template;
  std::string key_file;
  std::string log = "text";
  std::int64_t max_length = 0;
  double request_timeout = 30;
  double idle_timeout = 60;
  double send_timeout = 30;
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

/// Writes a line of the log; a closed log is not an error.
void write_line(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

/// What is no request, in the form of the log.
void say(const ServeOptions& options, const std::string& message) {
  const std::string time = timestamp(std::chrono::system_clock::now());
  write_line(options.log == "json" ? nlohmann::json{{"time", time}, {"message", message}}.dump() : message);
}

/// The allocator gives back what large requests took, instead of keeping it for each thread that had one.
void return_memory() {
#ifdef __GLIBC__
  // NOLINTBEGIN(concurrency-mt-unsafe): there are no other threads yet
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
  // NOLINTEND(concurrency-mt-unsafe)
#endif
}

std::optional<ApiKey> read_key(const std::string& path) {
  if (path.empty()) {
    const char* const variable = std::getenv(kKeyVariable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
    if (variable == nullptr) return std::nullopt;
    return ApiKey(variable, kKeyVariable);
  }
  const MappedFile file(path);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  return ApiKey(text, fmt::format("{:?}", path));
}

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

/// Null: there is no chat.
const ChatTemplate* chosen_chat_template(const std::string& name, const Tokenizer* tokenizer) {
  if (name != kAnyTemplate) return find_chat_template(name);
  const ChatTemplate* found = tokenizer == nullptr ? nullptr : chat_template_of(*tokenizer);
  TETRAD_CHECK(
      found != nullptr,
      "--chat-template auto: the model's tokenizer has the special tokens of no template that is known "
      "here, so nothing says how its chats are written: name one, or leave the option out");
  return found;
}

CompletionContext context_of(const ServeOptions& options, const LoadedModel& model) {
  CompletionContext context;
  context.model = options.name.empty() ? model.config().model.name : options.name;
  context.vocab = model.config().model.vocab;
  context.max_length = options.max_length > 0 ? options.max_length : model.sequence();
  context.max_tokens = std::max(context.max_tokens, context.max_length);
  context.tokenizer = tokenizer_of(model);
  context.ends = model.ends_of_text();
  context.chat = chosen_chat_template(options.chat_template, context.tokenizer);
  return context;
}

/// A model with everything that computes with it.
struct ServedModel {
  explicit ServedModel(const ServeOptions& options)
      : backend(choose_backend(options.model)),
        loaded(load_model(options.model, *backend)),
        context(context_of(options, loaded)),
        memory(checked_memory(options, loaded.decoder(), context.max_length)),
        engine(loaded.decoder(), loaded.pass(), options.engine) {}

  std::unique_ptr<Backend> backend;
  LoadedModel loaded;
  CompletionContext context;
  std::int64_t memory;  //!< bytes that sequences may take
  Engine engine;
};

/// Answers on a thread of its own, so that somebody can ask for a model that is still being loaded.
class Answering {
 public:
  Answering(HttpServer& server, Service& service, const HttpServer::Ending& ending)
      : service_(service), thread_([this, &server, &service, ending] {
          server.run(
              service, [this] { return stop_.load(); }, ending);
        }) {}
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;
  ~Answering() { stop(); }

  void stop() {
    service_.begin_to_stop();
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  Service& service_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;  //!< last: it uses all of the above
};

void introduce(const ServeOptions& options, const ServedModel& model, const HttpServer& server,
               bool has_key) {
  say(options,
      fmt::format(
          "{} from {}: prompt and continuation of up to {} tokens, {} sequences at a time{}, "
          "for which up to {:.1f} MB are needed",
          model.context.model, model.loaded.path().string(), model.context.max_length, options.engine.batch,
          model.engine.reads_together() ? ""
                                        : " (each by itself, since scales span a pass at this precision)",
          static_cast<double>(model.memory) / 1e6));
  if (!has_key && !server.is_loopback())
    say(options,
        fmt::format("warning: whoever reaches {} may use the model; give an API key (--api-key-file)",
                    options.server.address.host));
}

void run(const ServeOptions& options) {
  return_memory();
  ServerOptions server_options = options.server;
  server_options.request_timeout = seconds(options.request_timeout);
  server_options.idle_timeout = seconds(options.idle_timeout);
  server_options.send_timeout = seconds(options.send_timeout);
  const std::optional<ApiKey> key = read_key(options.key_file);
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads the log may go away

  std::unique_ptr<ServedModel> model;  // outlives what answers with it
  HttpServer server(server_options);   // before minutes of loading: the port may be taken
  Service service({.version = kVersion,
                   .build = kBuildId,
                   .key = key,
                   .memory = &server.memory(),
                   .logs_json = options.log == "json",
                   .log = write_line});
  const auto give_up = [&] {
    say(options, "dropping the requests in progress");
    service.give_up();
  };
  Answering answering(server, service, {seconds(options.grace), give_up});
  model = std::make_unique<ServedModel>(options);
  const StopSignals signals(false);  // the log says so
  service.open(model->engine, model->context);
  introduce(options, *model, server, key.has_value());
  fmt::print("listening on {}\n", server.url());
  std::fflush(stdout);
  while (!signals.received()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  answering.stop();
  say(options, "stopped");
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
  command
      .add_option("--memory-budget", options.server.memory,
                  "Memory that all requests together may take; more are answered 503")
      ->check(CLI::Range(std::size_t{1} << 20, std::size_t{1} << 50))
      ->type_name("BYTES")
      ->capture_default_str();
  command
      .add_option("--prompt-part", options.engine.part,
                  "Tokens of a long prompt that are read at a time, while other requests wait")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->type_name("N")
      ->capture_default_str();
  const auto add_seconds = [&](const char* name, double& value, const char* meaning) {
    command.add_option(name, value, meaning)->check(number_between(0.1, 3600))->capture_default_str();
  };
  add_seconds("--timeout", options.request_timeout, "Seconds a client has to send its request");
  add_seconds("--idle-timeout", options.idle_timeout, "Seconds that a connection may wait for a request");
  add_seconds("--send-timeout", options.send_timeout, "Seconds that a client may let an answer wait in all");
  command.add_option("--grace", options.grace, "Seconds that requests in progress get when the server stops")
      ->check(number_between(0, 3600))
      ->capture_default_str();
}

void add_access(CLI::App& command, ServeOptions& options) {
  command
      .add_option("--host", options.server.address.host,
                  "Address to listen on; 0.0.0.0 accepts connections from other machines")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command.add_option("--port", options.server.address.port, "Port to listen on; 0 takes a free one")
      ->capture_default_str();
  command
      .add_option("--api-key-file", options.key_file,
                  fmt::format("File with the key that requests have to send (default: the variable {})",
                              kKeyVariable))
      ->type_name("FILE");
  command
      .add_option("--allowed-host", options.server.allowed_hosts,
                  "A name of this server that requests may use, besides localhost and addresses in numbers; "
                  "* allows all")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command.add_option("--log", options.log, "Lines on stderr: text, or json with an object per request")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Serve OpenAI's completions and chat API over HTTP");
  add_model_options(*command, options->model);
  add_access(*command, *options);
  command->add_option("--name", options->name, "Name of the model (default: model.name)");
  std::vector<std::string> templates = {kAnyTemplate};
  for (const ChatTemplate& form : chat_templates()) templates.emplace_back(form.name);
  command
      ->add_option("--chat-template", options->chat_template,
                   fmt::format("Answer chats, written as {}; auto: by the tokenizer's special tokens",
                               fmt::join(templates, ", ")))
      ->check(CLI::IsMember(templates))
      ->type_name("NAME");
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
