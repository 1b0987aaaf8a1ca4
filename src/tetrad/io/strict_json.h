// SPDX-License-Identifier: Apache-2.0
#pragma once
// JSON from outside, with everything refused that the JSON library would let pass or guess at.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tetrad {

struct JsonLimits {
  std::size_t bytes = 1 << 20;
  int depth = 16;                  //!< most levels of nested objects and lists
  std::size_t values = SIZE_MAX;   //!< most values of any kind, which take more memory than their text
  std::size_t members = SIZE_MAX;  //!< most members of all objects together
};

/// Throws Error (bad input) that begins with `where` if the text is not UTF-8, is not one JSON value, is
/// longer or deeper or has more values than allowed, or has an object with the same key twice.
nlohmann::json parse_strict_json(std::string_view text, std::string_view where, const JsonLimits& limits);

/// The same for a file.
nlohmann::json read_strict_json(const std::filesystem::path& path, const JsonLimits& limits);

/// The member of an object, or null if there is none or `object` is no object.
const nlohmann::json& member_of(const nlohmann::json& object, std::string_view key);

/// A whole number from `low` to `high`; throws Error (bad input) about `what` otherwise, also for 1.0.
std::int64_t checked_integer(const nlohmann::json& value, std::string_view what, std::int64_t low,
                             std::int64_t high);

}  // namespace tetrad
