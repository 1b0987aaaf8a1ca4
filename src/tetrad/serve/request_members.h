// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads the members of a request one by one, and knows at the end which nobody asked for.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/serve/api_error.h"

namespace tetrad {

[[noreturn]] void refuse_parameter(const std::string& parameter, const std::string& message);

/// A request's body with at most so many values; throws ApiError (400) for what is no JSON.
nlohmann::json parse_request_json(std::string_view body, std::int64_t values);

/// All of it throws ApiError (400). null is as good as absent.
class RequestMembers {
 public:
  explicit RequestMembers(const nlohmann::json& object);

  const nlohmann::json* find(const char* name);
  std::int64_t integer(const char* name, std::int64_t otherwise, std::int64_t low, std::int64_t high);
  double number(const char* name, double otherwise, double low, double high);
  bool boolean(const char* name);
  /// What other servers do and this one does not: only the value that changes nothing is accepted.
  void refuse_unless(const char* name, const nlohmann::json& neutral, const char* why);
  /// Members of other servers that change what is generated, with the values that do not.
  void refuse_what_changes_the_text();
  /// Sentences about the members that nobody asked for. They are of no use here: what a client cannot do
  /// without is refused by name.
  std::vector<std::string> warnings() const;

 private:
  const nlohmann::json& object_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tetrad
