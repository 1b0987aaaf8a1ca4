// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tetrad/io/safetensors_header.h"
#include "tetrad/serve/logprobs.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

/// Looks for stop strings while a text grows.
class StopWatch {
 public:
  StopWatch(const Tokenizer& tokenizer, std::vector<std::string> stop)
      : tokenizer_(tokenizer), stop_(std::move(stop)) {
    for (const std::string& text : stop_) longest_ = std::max(longest_, text.size());
  }
  bool operator()(std::span<const std::int32_t> generated) {
    const std::size_t old = text_.size();
    text_ += tokenizer_.decode(generated.last(1));
    return find_stop(text_, stop_, old - std::min(old, longest_ - 1)).has_value();
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::string> stop_;
  std::string text_;
  std::size_t longest_ = 1;
};

/// A seed for each continuation of a prompt; the first has the one that was asked for.
std::uint64_t seed_of(std::uint64_t seed, std::int64_t continuation) {
  constexpr std::uint64_t kStride = 0x9E3779B97F4A7C15u;  // apart from what people choose
  return seed + kStride * static_cast<std::uint64_t>(continuation);
}

Json logprobs_json(const CompletionRequest& request, const CompletionContext& context,
                   const std::vector<std::int32_t>& prompt, const Generation& generation) {
  Logprobs logprobs(context.tokenizer);
  for (std::size_t i = 0; request.echo && i < prompt.size(); ++i)
    logprobs.add(prompt[i], i == 0 ? nullptr : &generation.prompt_scores[i - 1]);
  for (std::size_t i = 0; i < generation.tokens.size(); ++i)
    logprobs.add(generation.tokens[i], &generation.scores[i]);
  return logprobs.take();
}

/// Without the end token and from the stop string on.
std::string generated_text(const CompletionRequest& request, const CompletionContext& context,
                           const Generation& generation) {
  std::string text = context.tokenizer->decode(without_end(generation.tokens, request, context));
  if (const auto at = find_stop(text, request.stop)) text.resize(*at);
  return text;
}

}  // namespace

std::string token_name(const Tokenizer* tokenizer, std::int32_t id) {
  if (tokenizer == nullptr || id >= tokenizer->vocab()) return fmt::format("token_id:{}", id);
  std::string text = tokenizer->decode(std::span(&id, 1));
  if (text == kReplacementCharacter) return fmt::format("token_id:{}", id);  // an id that no token has
  if (!find_invalid_utf8(text)) return text;
  std::string name = "bytes:";
  for (const char c : text) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

std::optional<std::size_t> find_stop(std::string_view text, const std::vector<std::string>& stop,
                                     std::size_t from) {
  std::size_t first = std::string_view::npos;
  for (const std::string& wanted : stop) first = std::min(first, text.find(wanted, from));
  if (first == std::string_view::npos) return std::nullopt;
  return first;
}

std::int64_t CompletionRequest::tokens() const {
  std::int64_t total = 0;
  for (const auto& prompt : prompts) total += static_cast<std::int64_t>(prompt.size()) + max_tokens;
  return total * n;
}

std::vector<GenerationTask> tasks_of(const CompletionRequest& request, const CompletionContext& context) {
  std::vector<GenerationTask> tasks;
  for (const auto& prompt : request.prompts)
    for (std::int64_t i = 0; i < request.n; ++i) {
      GenerationTask task;
      task.prompt = prompt;
      task.max_tokens = request.max_tokens;
      task.sampling = request.sampling;
      task.sampling.seed = seed_of(request.sampling.seed, i);
      if (!request.ignore_eos) task.ends = context.ends;
      task.score_prompt = request.echo && request.logprobs;
      task.score_generated = request.logprobs.has_value();
      task.likeliest = request.logprobs.value_or(0);
      if (!request.stop.empty()) task.is_enough = StopWatch(*context.tokenizer, request.stop);
      tasks.push_back(std::move(task));
    }
  return tasks;
}

std::span<const std::int32_t> without_end(std::span<const std::int32_t> tokens,
                                          const CompletionRequest& request,
                                          const CompletionContext& context) {
  const bool has_end = !request.ignore_eos && !tokens.empty() &&
                       std::ranges::find(context.ends, tokens.back()) != context.ends.end();
  return tokens.first(tokens.size() - (has_end ? 1 : 0));
}

Json completion_response(const CompletionRequest& request, const CompletionContext& context,
                         const std::vector<Generation>& generations) {
  Json choices = Json::array();
  std::size_t completion_tokens = 0;
  for (std::size_t i = 0; i < generations.size(); ++i) {
    const auto& prompt = request.prompts[i / static_cast<std::size_t>(request.n)];
    const Generation& generation = generations[i];
    completion_tokens += generation.tokens.size();
    std::string text;
    if (context.tokenizer != nullptr) {
      if (request.echo) text = context.tokenizer->decode(prompt);
      text += generated_text(request, context, generation);
    }
    Json choice = {{"index", i},
                   {"finish_reason", generation.finish == Finish::stop ? "stop" : "length"},
                   {"logprobs", nullptr}};
    if (request.is_chat)
      choice["message"] = {{"role", "assistant"}, {"content", std::move(text)}};
    else
      choice["text"] = std::move(text);
    if (request.logprobs) choice["logprobs"] = logprobs_json(request, context, prompt, generation);
    if (request.return_token_ids) choice["token_ids"] = generation.tokens;
    choices.push_back(std::move(choice));
  }
  Json response = {{"object", request.is_chat ? "chat.completion" : "text_completion"},
                   {"model", context.model},
                   {"choices", std::move(choices)},
                   {"usage", usage_json(request, completion_tokens)}};
  if (!request.warnings.empty()) response["warnings"] = request.warnings;
  return response;
}

Json usage_json(const CompletionRequest& request, std::size_t completion_tokens) {
  std::size_t prompt_tokens = 0;
  for (const auto& prompt : request.prompts) prompt_tokens += prompt.size();
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

}  // namespace tetrad
