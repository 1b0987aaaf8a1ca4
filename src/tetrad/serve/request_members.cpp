// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/request_members.h"

#include <fmt/format.h>

#include <cmath>

#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {

using Json = nlohmann::json;

void refuse_parameter(const std::string& parameter, const std::string& message) {
  throw ApiError(400, message, parameter);
}

Json parse_request_json(std::string_view body, std::int64_t values) {
  constexpr std::size_t kMembers = 1000;
  constexpr int kDepth = 8;  // what is ignored may be an object too
  try {
    return parse_strict_json(body, "the body",
                             {.bytes = body.size(),
                              .depth = kDepth,
                              .values = kMembers + static_cast<std::size_t>(values),
                              .members = kMembers});
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

RequestMembers::RequestMembers(const Json& object) : object_(object) {
  if (!object.is_object()) refuse_parameter("", "the body must be a JSON object");
}

const Json* RequestMembers::find(const char* name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::int64_t RequestMembers::integer(const char* name, std::int64_t otherwise, std::int64_t low,
                                     std::int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  try {
    return checked_integer(*value, name, low, high);
  } catch (const Error& error) {
    refuse_parameter(name, error.what());
  }
}

double RequestMembers::number(const char* name, double otherwise, double low, double high) {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  const double result = value->is_number() ? value->get<double>() : std::nan("");
  if (!(result >= low && result <= high))
    refuse_parameter(name, fmt::format("{} must be a number from {} to {}", name, low, high));
  return result;
}

bool RequestMembers::boolean(const char* name) {
  const Json* value = find(name);
  if (value != nullptr && !value->is_boolean())
    refuse_parameter(name, fmt::format("{} must be true or false", name));
  return value != nullptr && value->get<bool>();
}

void RequestMembers::refuse_unless(const char* name, const Json& neutral, const char* why) {
  const Json* value = find(name);
  if (value != nullptr && *value != neutral) refuse_parameter(name, fmt::format("{}: {}", name, why));
}

void RequestMembers::refuse_what_changes_the_text() {
  for (const char* name : {"presence_penalty", "frequency_penalty"})
    refuse_unless(name, 0, "penalties are not implemented");
  refuse_unless("repetition_penalty", 1, "penalties are not implemented");
  refuse_unless("logit_bias", Json::object(), "biases are not implemented");
  for (const char* name : {"min_p", "typical_p", "min_tokens"})
    refuse_unless(name, 0, "it is not implemented");
  refuse_unless("use_beam_search", false, "it is not implemented");
  for (const char* name : {"stop_token_ids", "bad_words", "allowed_token_ids", "tools", "functions"})
    refuse_unless(name, Json::array(), "it is not implemented");
  refuse_unless("tool_choice", "none", "there are no tools here");
  refuse_unless("function_call", "none", "there are no functions here");
  refuse_unless("response_format", Json{{"type", "text"}}, "only text, since nothing constrains the model");
  refuse_unless("modalities", Json::array({"text"}), "only text");
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar",
                           "structured_outputs", "audio", "truncate_prompt_tokens", "prompt_logprobs"})
    refuse_unless(name, nullptr, "it is not implemented");
}

std::vector<std::string> RequestMembers::warnings() const {
  constexpr std::size_t kMost = 16;
  std::vector<std::string> result;
  for (const auto& member : object_.items()) {
    if (known_.contains(member.key())) continue;
    if (result.size() == kMost) {
      result.emplace_back("more members were ignored");
      break;
    }
    result.push_back(fmt::format("{} is not known here and was ignored", quoted_name(member.key())));
  }
  return result;
}

}  // namespace tetrad
