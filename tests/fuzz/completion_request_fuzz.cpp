// SPDX-License-Identifier: Apache-2.0
// Any body is a request that keeps to the limits, or an HttpError; a request's response can be written.

#include <nlohmann/json.hpp>

#include "fuzz/targets.h"
#include "tetrad/http/request.h"
#include "tetrad/serve/chat_template.h"
#include "tetrad/serve/completion_stream.h"
#include "tetrad/serve/completions.h"

namespace tetrad::testing {
namespace {

constexpr std::int64_t kMaxLength = 64;
constexpr std::size_t kMaxSequences = 8;
constexpr std::int32_t kHalfACharacter = 0xC3;

/// What a model could answer to `task`.
Generation answer_to(const GenerationTask& task) {
  Generation generation;
  if (task.score_prompt) generation.prompt_scores.resize(task.prompt.size() - 1, {7, -1.5, {{299, -0.5}}});
  generation.tokens.resize(static_cast<std::size_t>(task.max_tokens), kHalfACharacter);
  if (task.score_generated) generation.scores.resize(generation.tokens.size(), {kHalfACharacter, -1.5, {}});
  if (task.is_enough && !generation.tokens.empty()) task.is_enough(generation.tokens);
  return generation;
}

/// The same as a stream: every event is a line of JSON.
void check_stream(const CompletionRequest& request, const CompletionContext& context,
                  const std::vector<Generation>& generations) {
  constexpr std::string_view kBegin = "data: ";
  const nlohmann::json frame = nlohmann::json::object();
  const CompletionStream::Write write = [&](std::string_view event) {
    require(event.starts_with(kBegin) && event.ends_with("\n\n"));
    require(event == "data: [DONE]\n\n" || nlohmann::json::accept(event.substr(kBegin.size())));
  };
  CompletionStream stream(request, context, frame, write);
  for (std::size_t i = 0; i < generations.size(); ++i) stream.add(i, generations[i], true);
  stream.finish();
}

using Parse = CompletionRequest(std::string_view, const CompletionContext&, std::uint64_t);

void check_request(Parse* parse, std::string_view body, const CompletionContext& context) {
  try {
    const CompletionRequest request = parse(body, context, 1);
    const std::vector<GenerationTask> tasks = tasks_of(request, context);
    require(!tasks.empty() && tasks.size() <= kMaxSequences);
    std::vector<Generation> generations;
    for (const GenerationTask& task : tasks) {
      require(!task.prompt.empty() && std::ssize(task.prompt) + task.max_tokens <= kMaxLength);
      generations.push_back(answer_to(task));
    }
    const nlohmann::json response = completion_response(request, context, generations);
    const std::string text = response.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    require(nlohmann::json::accept(text));
    check_stream(request, context, generations);
  } catch (const HttpError& error) {
    require(error.status() == 400 || error.status() == 404);
  }
}

}  // namespace

void fuzz_completion_request(std::string_view bytes) {
  static const ByteTokenizer tokenizer;
  CompletionContext context;
  context.model = "fuzzed";
  context.vocab = 300;  // more than the tokenizer has
  context.max_length = kMaxLength;
  context.max_sequences = kMaxSequences;
  check_request(parse_completion_request, bytes, context);
  context.tokenizer = &tokenizer;
  check_request(parse_completion_request, bytes, context);
  context.chat = find_chat_template("plain");
  check_request(parse_chat_request, bytes, context);
}

}  // namespace tetrad::testing
