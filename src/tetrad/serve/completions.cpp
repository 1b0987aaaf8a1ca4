// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/strict_json.h"
#include "tetrad/serve/api_error.h"
#include "tetrad/serve/logprobs.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxLogprobs = 5;
constexpr std::int64_t kMaxN = 128;
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr JsonLimits kRequestJson = {.bytes = std::size_t{1} << 30, .depth = 4};  // the server limits bodies

[[noreturn]] void wrong(const std::string& parameter, const std::string& message) {
  throw ApiError(400, message, parameter);
}

/// Reads members one by one and knows at the end which nobody asked for. null is as good as absent.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {
    if (!object.is_object()) wrong("", "the body must be a JSON object");
  }

  const Json* find(const char* name) {
    known_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::int64_t integer(const char* name, std::int64_t otherwise, std::int64_t low, std::int64_t high) {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    try {
      return checked_integer(*value, name, low, high);
    } catch (const Error& error) {
      wrong(name, error.what());
    }
  }
  double number(const char* name, double otherwise, double low, double high) {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    const double result = value->is_number() ? value->get<double>() : std::nan("");
    if (!(result >= low && result <= high))
      wrong(name, fmt::format("{} must be a number from {} to {}", name, low, high));
    return result;
  }
  bool boolean(const char* name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_boolean()) wrong(name, fmt::format("{} must be true or false", name));
    return value != nullptr && value->get<bool>();
  }
  /// What other servers do and this one does not: only the value that changes nothing is accepted.
  void refuse_unless(const char* name, const Json& neutral, const char* why) {
    const Json* value = find(name);
    if (value != nullptr && *value != neutral) wrong(name, fmt::format("{}: {}", name, why));
  }
  void refuse_others() const {
    for (const auto& member : object_.items())
      if (!known_.contains(member.key()))
        wrong(member.key().substr(0, 60), fmt::format("{} is not known here", quoted_name(member.key())));
  }

 private:
  const Json& object_;
  std::set<std::string, std::less<>> known_;
};

std::vector<std::int32_t> encode_prompt(const std::string& text, const CompletionContext& context) {
  if (context.tokenizer == nullptr)
    wrong("prompt", "the model has no tokenizer: give the prompt as token ids");
  std::vector<std::int32_t> ids = context.tokenizer->encode(text);
  if (ids.empty()) {
    const std::optional<std::int32_t> end = context.tokenizer->end_of_document();
    if (!end) wrong("prompt", "the prompt is empty");
    ids.push_back(*end);  // a document begins
  }
  for (const std::int32_t id : ids)
    if (id >= context.vocab)
      wrong("prompt", fmt::format("the text has the token {}, which the model does not know", id));
  return ids;
}

/// A string, a list of strings, a list of ids or a list of lists of ids.
std::vector<std::vector<std::int32_t>> parse_prompts(const Json* value, const CompletionContext& context) {
  if (value == nullptr) wrong("prompt", "there is no prompt");
  if (value->is_string()) return {encode_prompt(value->get_ref<const std::string&>(), context)};
  if (!value->is_array() || value->empty())
    wrong("prompt",
          "prompt must be a string, a list of strings, a list of token ids or a list of such lists");
  if (value->front().is_number()) return {parse_token_ids(*value, "prompt", context.vocab)};
  if (static_cast<std::int64_t>(value->size()) > context.max_sequences)
    wrong("prompt", fmt::format("{} prompts are more than the {} of one request", value->size(),
                                context.max_sequences));
  std::vector<std::vector<std::int32_t>> prompts;
  for (const Json& entry : *value) {
    if (entry.is_string() != value->front().is_string()) wrong("prompt", "prompt mixes texts and token ids");
    prompts.push_back(entry.is_string() ? encode_prompt(entry.get_ref<const std::string&>(), context)
                                        : parse_token_ids(entry, "prompt", context.vocab));
  }
  return prompts;
}

std::vector<std::string> parse_stop(const Json* value, const CompletionContext& context) {
  std::vector<std::string> result;
  if (value == nullptr) return result;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > kMaxStops) wrong("stop", fmt::format("stop has more than {} strings", kMaxStops));
  for (const Json& entry : list) {
    if (!entry.is_string()) wrong("stop", "stop must be a string or a list of strings");
    result.push_back(entry.get<std::string>());
    if (result.back().empty() || result.back().size() > kMaxStopBytes)
      wrong("stop", fmt::format("a stop string has 1 to {} bytes", kMaxStopBytes));
  }
  if (!result.empty() && context.tokenizer == nullptr)
    wrong("stop", "the model has no tokenizer, so there is no text to stop at");
  return result;
}

void parse_sampling(Members& members, SamplingOptions& sampling, std::uint64_t seed) {
  constexpr double kHottest = 100;
  sampling.temperature = members.number("temperature", sampling.temperature, 0, kHottest);
  sampling.top_p = members.number("top_p", sampling.top_p, 0, 1);
  sampling.top_k = members.integer("top_k", 0, -1, INT32_MAX);
  sampling.top_k = std::max<std::int64_t>(sampling.top_k, 0);  // -1 means all in other servers
  const Json* wanted = members.find("seed");
  sampling.seed =
      wanted == nullptr ? seed : static_cast<std::uint64_t>(members.integer("seed", 0, INT64_MIN, INT64_MAX));
}

void parse_stream(Members& members, CompletionRequest& request) {
  request.stream = members.boolean("stream");
  const Json* options = members.find("stream_options");
  if (options == nullptr) return;
  if (!request.stream) wrong("stream_options", "stream_options: only with stream");
  if (!options->is_object()) wrong("stream_options", "stream_options must be an object");
  Members inner(*options);
  request.include_usage = inner.boolean("include_usage");
  inner.refuse_others();
}

void check_lengths(const CompletionRequest& request, const CompletionContext& context) {
  for (const auto& prompt : request.prompts)
    if (static_cast<std::int64_t>(prompt.size()) > context.max_length - request.max_tokens)
      wrong("prompt",
            fmt::format("a prompt of {} tokens and max_tokens {} are together more than the {} tokens that "
                        "this server allows (tetrad serve --max-length)",
                        prompt.size(), request.max_tokens, context.max_length));
  const std::int64_t sequences = static_cast<std::int64_t>(request.prompts.size()) * request.n;
  if (sequences > context.max_sequences)
    wrong("n", fmt::format("{} prompts with n {} are more than the {} sequences of one request",
                           request.prompts.size(), request.n, context.max_sequences));
  // What is kept of a token until the response is sent may take a kilobyte.
  if (request.tokens() > context.max_tokens)
    wrong("prompt", fmt::format("prompts and continuations have {} tokens in all, more than the {} of one "
                                "request: send fewer at a time",
                                request.tokens(), context.max_tokens));
}

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
std::string generated_text(const CompletionRequest& request, const Tokenizer& tokenizer,
                           const Generation& generation) {
  std::span<const std::int32_t> tokens = generation.tokens;
  if (!tokens.empty() && tokens.back() == tokenizer.end_of_document())
    tokens = tokens.first(tokens.size() - 1);
  std::string text = tokenizer.decode(tokens);
  if (const auto at = find_stop(text, request.stop)) text.resize(*at);
  return text;
}

}  // namespace

std::vector<std::int32_t> parse_token_ids(const Json& value, const std::string& what, std::int64_t vocab) {
  if (!value.is_array() || value.empty()) wrong(what, what + ": a list of token ids must have at least one");
  std::vector<std::int32_t> ids;
  ids.reserve(value.size());
  for (const Json& id : value) {
    try {
      ids.push_back(static_cast<std::int32_t>(checked_integer(id, "a token id", 0, vocab - 1)));
    } catch (const Error& error) {
      wrong(what, fmt::format("{}: {}", what, error.what()));
    }
  }
  return ids;
}

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

CompletionRequest parse_completion_request(std::string_view body, const CompletionContext& context,
                                           std::uint64_t seed) {
  const Json json = [&] {
    try {
      return parse_strict_json(body, "the body", kRequestJson);
    } catch (const Error& error) {
      throw ApiError(400, error.what());
    }
  }();
  Members members(json);
  if (const Json* model = members.find("model"); model != nullptr && *model != context.model)
    throw ApiError(404, fmt::format("the model here is {:?}", context.model), "model", "model_not_found");
  members.refuse_unless("suffix", "", "text cannot be inserted here");
  members.refuse_unless("presence_penalty", 0, "penalties are not implemented");
  members.refuse_unless("frequency_penalty", 0, "penalties are not implemented");
  members.refuse_unless("logit_bias", Json::object(), "biases are not implemented");
  members.find("user");  // says nothing about the text

  CompletionRequest request;
  parse_stream(members, request);
  request.max_tokens = members.integer("max_tokens", request.max_tokens, 0, context.max_length);
  request.n = members.integer("n", 1, 1, kMaxN);
  if (members.integer("best_of", request.n, 1, kMaxN) != request.n)
    wrong("best_of", "best_of: only as many as n, since nothing is chosen here");
  parse_sampling(members, request.sampling, seed);
  if (members.find("logprobs") != nullptr) request.logprobs = members.integer("logprobs", 0, 0, kMaxLogprobs);
  request.echo = members.boolean("echo");
  request.return_token_ids = members.boolean("return_token_ids");
  request.stop = parse_stop(members.find("stop"), context);
  const Json* prompt = members.find("prompt");
  members.refuse_others();
  request.prompts = parse_prompts(prompt, context);
  check_lengths(request, context);
  return request;
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
      if (context.tokenizer != nullptr) task.end = context.tokenizer->end_of_document();
      task.score_prompt = request.echo && request.logprobs;
      task.score_generated = request.logprobs.has_value();
      task.likeliest = request.logprobs.value_or(0);
      if (!request.stop.empty()) task.is_enough = StopWatch(*context.tokenizer, request.stop);
      tasks.push_back(std::move(task));
    }
  return tasks;
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
      text += generated_text(request, *context.tokenizer, generation);
    }
    Json choice = {{"index", i},
                   {"text", std::move(text)},
                   {"finish_reason", generation.finish == Finish::stop ? "stop" : "length"},
                   {"logprobs", nullptr}};
    if (request.logprobs) choice["logprobs"] = logprobs_json(request, context, prompt, generation);
    if (request.return_token_ids) choice["token_ids"] = generation.tokens;
    choices.push_back(std::move(choice));
  }
  return {{"object", "text_completion"},
          {"model", context.model},
          {"choices", std::move(choices)},
          {"usage", usage_json(request, completion_tokens)}};
}

Json usage_json(const CompletionRequest& request, std::size_t completion_tokens) {
  std::size_t prompt_tokens = 0;
  for (const auto& prompt : request.prompts) prompt_tokens += prompt.size();
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

}  // namespace tetrad
