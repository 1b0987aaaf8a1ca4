// Any body is a request that keeps to the limits, or an HttpError; a request's response can be written.

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tetrad/http/request.h"
#include "tetrad/serve/completion_stream.h"
#include "tetrad/serve/completions.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tetrad::ByteTokenizer tokenizer;
  tetrad::CompletionContext context;
  context.model = "fuzzed";
  context.vocab = 300;  // more than the tokenizer has
  context.max_length = 64;
  context.max_sequences = 8;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const tetrad::Tokenizer* with :
       {static_cast<const tetrad::Tokenizer*>(nullptr), static_cast<const tetrad::Tokenizer*>(&tokenizer)}) {
    context.tokenizer = with;
    try {
      const tetrad::CompletionRequest request = tetrad::parse_completion_request(body, context, 1);
      std::vector<tetrad::GenerationTask> tasks = tetrad::tasks_of(request, context);
      if (tasks.empty() || tasks.size() > 8) std::abort();
      std::vector<tetrad::Generation> generations;
      for (tetrad::GenerationTask& task : tasks) {
        if (task.prompt.empty() || task.prompt.size() + static_cast<std::size_t>(task.max_tokens) > 64)
          std::abort();
        tetrad::Generation& generation = generations.emplace_back();
        if (task.score_prompt)
          generation.prompt_scores.resize(task.prompt.size() - 1, {7, -1.5, {{299, -0.5}}});
        generation.tokens.resize(static_cast<std::size_t>(task.max_tokens), 0xC3);  // half a character
        if (task.score_generated) generation.scores.resize(generation.tokens.size(), {0xC3, -1.5, {}});
        if (task.is_enough && !generation.tokens.empty()) task.is_enough(generation.tokens);
      }
      const nlohmann::json response = tetrad::completion_response(request, context, generations);
      const std::string text = response.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      if (!nlohmann::json::accept(text)) std::abort();
      const nlohmann::json frame = nlohmann::json::object();
      const tetrad::CompletionStream::Write write = [](std::string_view event) {
        if (!event.starts_with("data: ") || !event.ends_with("\n\n")) std::abort();
        if (event != "data: [DONE]\n\n" && !nlohmann::json::accept(event.substr(6))) std::abort();
      };
      tetrad::CompletionStream stream(request, context, frame, write);
      for (std::size_t i = 0; i < generations.size(); ++i) stream.add(i, generations[i], true);
      stream.finish();
    } catch (const tetrad::HttpError& error) {
      if (error.status() != 400 && error.status() != 404) std::abort();
    }
  }
  return 0;
}
