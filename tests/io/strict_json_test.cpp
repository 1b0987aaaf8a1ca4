// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/strict_json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "support/errors.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;

constexpr JsonLimits kLimits = {.bytes = std::size_t{1} << 24, .depth = 3};

nlohmann::json parse_strictly(std::string_view text) { return parse_strict_json(text, "some.json", kLimits); }

TEST(StrictJson, GivesWhatIsThere) {
  EXPECT_EQ(parse_strictly(R"( {"a": [1, -2, 0.5], "b": {"a": "\u00e9"}, "c": null} )"),
            nlohmann::json({{"a", {1, -2, 0.5}}, {"b", {{"a", "é"}}}, {"c", nullptr}}));
  EXPECT_EQ(parse_strictly("7"), 7);
  EXPECT_EQ(parse_strictly("[[[]]]").dump(), "[[[]]]");
}

TEST(StrictJson, RefusesWhatLibrariesLetPassOrGuessAt) {
  const auto refused = [](std::string_view text, const std::string& word) {
    expect_bad_input([&] { parse_strictly(text); }, {"some.json", word}, text.substr(0, 100));
  };
  refused(R"({"a": 1, "b": 2, "a": 1})", "\"a\" twice");
  refused(R"([{"x": {"a": 1, "a": 1}}])", "\"a\" twice");
  refused("[[[[]]]]", "more than 3 nested");
  refused("[[[{}]]]", "more than 3 nested");
  refused(std::string(1 << 20, '['), "nested");
  refused("", "byte");
  refused("{} {}", "byte");
  refused("{\"a\": 1,}", "byte");
  refused("[NaN]", "byte");
  refused("[01]", "byte");
  refused("[1e999]", "too large");
  refused("\"\xC0\x80\"", "UTF-8 (byte 1)");
  refused(std::string_view("{}\0", 3), "zero byte");
  refused("\"\\ud800\"", "byte");
  expect_bad_input([] { parse_strict_json("[1, 2]", "it", {.bytes = 5}); }, {"6 bytes", "5"});
  expect_bad_input([] { parse_strict_json("[1, [], {}]", "it", {.values = 3}); }, {"more than 3 values"});
  EXPECT_EQ(parse_strict_json("[1, [], {}]", "it", {.values = 4}).size(), 3U);
  const std::string objects = R"([{"a": 1}, {"b": 2}])";
  expect_bad_input([&] { parse_strict_json(objects, "it", {.members = 1}); }, {"more than 1 members"});
  EXPECT_EQ(parse_strict_json(objects, "it", {.members = 2}).size(), 2U);
}

TEST(StrictJson, WholeNumbersAreWhole) {
  EXPECT_EQ(checked_integer(parse_strictly("-3"), "it", -3, 3), -3);
  for (const char* text : {"4", "-4", "1.0", "1e0", "18446744073709551615", "\"1\"", "null", "true", "[1]"})
    expect_bad_input([&] { checked_integer(parse_strictly(text), "it", -3, 3); }, {"it must be", "-3 to 3"},
                     text);
}

TEST(StrictJson, LongListsOfObjectsTakeNoHours) {
  std::string text = "[{}";
  for (int i = 0; i < 1'000'000; ++i) text += ",{}";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_strictly(text + "]").size(), 1'000'001U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace tetrad
