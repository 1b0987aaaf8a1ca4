// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/json_response.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tetrad/io/json_text.h"
#include "tetrad/serve/api_error.h"

namespace tetrad {

using Json = nlohmann::json;

HttpResponse json_response(const Json& json, HttpNote note) {
  HttpResponse response;
  response.content_type = "application/json";
  // Half a character at the end of a text becomes U+FFFD.
  response.body = json_text(json);
  response.note = std::move(note);
  return response;
}

Json error_json(const HttpError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const auto* const api = dynamic_cast<const ApiError*>(&error);
  return {{"error",
           {{"message", error.what()},
            {"type", error.status() < 500 ? "invalid_request_error" : "server_error"},
            {"param", api != nullptr ? or_null(api->parameter()) : Json()},
            {"code", api != nullptr ? or_null(api->code()) : Json()}}}};
}

HttpNote note_of(const HttpError& error) { return {fmt::format("{:?}", std::string_view(error.what()))}; }

}  // namespace tetrad
