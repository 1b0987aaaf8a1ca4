// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/api_key.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace tetrad::testing {
namespace {

constexpr const char* kKey = "0123456789abcdef";

/// The status that a request with this header gets; 0: it is let in.
int status_with(const std::optional<std::string>& authorization) {
  HttpRequest request;
  if (authorization) request.headers.emplace_back("authorization", *authorization);
  try {
    ApiKey(kKey, "it").check(request);
  } catch (const HttpError& error) {
    return error.status();
  }
  return 0;
}

TEST(ApiKey, LetsInWhoHasIt) {
  EXPECT_EQ(status_with("Bearer 0123456789abcdef"), 0);
  EXPECT_EQ(status_with("bearer 0123456789abcdef"), 0);
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdeF",
        "Bearer 0123456789abcdef0", "Bearer  0123456789abcdef", "0123456789abcdef", "Basic 0123456789abcdef"})
    EXPECT_EQ(status_with(wrong), 401) << wrong;
  EXPECT_EQ(status_with(std::nullopt), 401);
}

TEST(ApiKey, IsNotGuessedEasily) {
  for (const char* key :
       {"", "short", "0123456789abcde", "0123456789abcde ", "0123456789\nabcdef", "0123456789abcd\xC3\xA4"})
    expect_bad_input([&] { ApiKey(key, "key.txt"); }, {"key.txt", "16"}, key);
}

}  // namespace
}  // namespace tetrad::testing
