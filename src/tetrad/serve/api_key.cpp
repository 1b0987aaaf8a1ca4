// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/api_key.h"

#include <algorithm>
#include <span>

#include "tetrad/http/ascii.h"
#include "tetrad/io/sha256.h"

namespace tetrad {
namespace {

std::string digest_of(std::string_view key) { return sha256_hex(std::as_bytes(std::span(key))); }

/// Looks at all characters, also after one that differs. Both have the same length.
bool same_digests(std::string_view a, std::string_view b) {
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return different == 0;
}

}  // namespace

ApiKey::ApiKey(std::string_view key, std::string_view where) : digest_(digest_of(key)) {
  constexpr std::size_t kShortest = 16, kLongest = 1024;
  const auto is_visible = [](char c) { return c > ' ' && c < '\x7F'; };
  TETRAD_CHECK(key.size() >= kShortest && key.size() <= kLongest && std::ranges::all_of(key, is_visible),
               "{}: an API key has {} to {} visible ASCII characters; make one with 'openssl rand -hex 32'",
               where, kShortest, kLongest);
}

void ApiKey::check(const HttpRequest& request) const {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view given = request.header("authorization").value_or("");
  const bool has_scheme = lower_case(given.substr(0, kScheme.size())) == kScheme;
  const bool is_right = same_digests(digest_of(has_scheme ? given.substr(kScheme.size()) : given), digest_);
  if (!has_scheme || !is_right)
    throw HttpError(401, has_scheme ? "the API key is wrong"
                                    : "an API key is needed: send the header 'Authorization: Bearer KEY'");
}

}  // namespace tetrad
