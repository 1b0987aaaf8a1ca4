// SPDX-License-Identifier: Apache-2.0
#pragma once
// POST /v1/completions as OpenAI defines it and as lm-evaluation-harness uses it, and its chat: a request to
// the tasks of the engine, and their results to the response.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/eval/sampler.h"
#include "tetrad/serve/engine.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

struct ChatTemplate;

/// What a client may ask of a model.
struct CompletionContext {
  std::string model;                     //!< its name
  std::int64_t vocab = 0;                //!< ids are below it
  std::int64_t max_length = 0;           //!< tokens of prompt and continuation
  std::int64_t max_sequences = 2048;     //!< prompts times n of one request
  std::int64_t max_tokens = 1 << 18;     //!< tokens of all these together, prompts and continuations
  const Tokenizer* tokenizer = nullptr;  //!< null: ids alone are understood
  std::vector<std::int32_t> ends;        //!< tokens that end a text and are no part of it
  const ChatTemplate* chat = nullptr;    //!< null: there is no chat
};

struct CompletionRequest {
  std::vector<std::vector<std::int32_t>> prompts;  //!< none is empty
  std::int64_t max_tokens = 16;
  std::int64_t n = 1;  //!< continuations of each prompt
  SamplingOptions sampling = {.temperature = 1};
  std::optional<std::int64_t> logprobs;  //!< how many of the likeliest tokens at each place
  bool echo = false;
  bool return_token_ids = false;
  bool ignore_eos = false;  //!< texts go on after tokens that end them, up to max_tokens
  bool stream = false;
  bool include_usage = false;  //!< in the stream
  bool is_chat = false;        //!< its response is a message
  std::vector<std::string> stop;
  std::vector<std::string> warnings;  //!< about members that were ignored; the response repeats them

  std::int64_t tokens() const;  //!< prompts and continuations, at most
  std::size_t bytes() const;    //!< of memory that it may take until its response is sent
};

/// Throws ApiError (400; 404 for another model) that says which parameter is wrong. `seed` is for requests
/// that name none.
CompletionRequest parse_completion_request(std::string_view body, const CompletionContext& context,
                                           std::uint64_t seed);

/// The same for /v1/chat/completions; also 404 if there is no chat.
CompletionRequest parse_chat_request(std::string_view body, const CompletionContext& context,
                                     std::uint64_t seed);

/// n for each prompt, in order.
std::vector<GenerationTask> tasks_of(const CompletionRequest& request, const CompletionContext& context);

/// Generated tokens without the one that ended them.
std::span<const std::int32_t> without_end(std::span<const std::int32_t> tokens,
                                          const CompletionRequest& request, const CompletionContext& context);

nlohmann::json completion_response(const CompletionRequest& request, const CompletionContext& context,
                                   const std::vector<Generation>& generations);

nlohmann::json usage_json(const CompletionRequest& request, std::size_t completion_tokens);

/// A token as a text that tells it from others: its own if that is UTF-8, "bytes:\xe2\x82" if it is
/// a part of a character, "token_id:7" if nobody knows.
std::string token_name(const Tokenizer* tokenizer, std::int32_t id);

/// Where the first of the stop strings begins, if there is one at or after `from`.
std::optional<std::size_t> find_stop(std::string_view text, const std::vector<std::string>& stop,
                                     std::size_t from = 0);

/// A member of a request that is a list of token ids of the model.
std::vector<std::int32_t> parse_token_ids(const nlohmann::json& value, const std::string& what,
                                          std::int64_t vocab);

}  // namespace tetrad
