// SPDX-License-Identifier: Apache-2.0
#pragma once
// Answers that are JSON, and errors as OpenAI says them.

#include <nlohmann/json_fwd.hpp>

#include "tetrad/http/request.h"
#include "tetrad/http/response.h"

namespace tetrad {

HttpResponse json_response(const nlohmann::json& json, HttpNote note = {});

/// OpenAI's error object.
nlohmann::json error_json(const HttpError& error);

/// The error as a note.
HttpNote note_of(const HttpError& error);

}  // namespace tetrad
