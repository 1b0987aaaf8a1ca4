// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/scalar.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "tetrad/config/parse.h"
#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad::config {
namespace {

std::string found_text(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::scalar:
      return node.quoted ? fmt::format("the text {}", shown(node.text)) : shown(node.text);
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a map";
  }
  return "";
}

/// A number as people write it in a message: 0.5, 1, 1000000.
std::string number(double value) {
  return std::floor(value) == value && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

std::string range_text(const Rule& rule) {
  const bool has_min = std::isfinite(rule.min);
  const bool has_max = std::isfinite(rule.max);
  std::string text;
  if (has_min) text += fmt::format(" {} {}", rule.above_min ? "above" : "of at least", number(rule.min));
  if (has_min && has_max) text += " and";
  if (has_max) text += fmt::format(" {} {}", rule.below_max ? "below" : "of at most", number(rule.max));
  return text;
}

bool in_range(double value, const Rule& rule) {
  return (rule.above_min ? value > rule.min : value >= rule.min) &&
         (rule.below_max ? value < rule.max : value <= rule.max);
}

template <typename T>
std::optional<T> convert(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// 010 is eight in YAML 1.1 and ten in 1.2, so it is neither here.
bool has_leading_zero(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

/// 1e9, 10_000, 100M, 1.5B: exact decimal arithmetic, so that 1.5B is whole and 0.5 is not.
std::optional<std::int64_t> convert_count(std::string_view text) {
  std::string digits;
  int exponent = 0;
  bool has_point = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c >= '0' && c <= '9') {
      digits += c;
      exponent -= has_point ? 1 : 0;
    } else if (c == '.' && !has_point) {
      has_point = true;
    } else if (c != '_' || digits.empty()) {
      break;
    }
  }
  if (digits.empty() || digits.size() > 30) return std::nullopt;
  const std::string_view suffix = text.substr(i);
  constexpr std::string_view kSuffixes = "KMBT";
  if (const std::size_t power = kSuffixes.find(suffix.empty() ? ' ' : suffix[0]);
      power != std::string_view::npos && suffix.size() == 1) {
    exponent += 3 * (static_cast<int>(power) + 1);
  } else if (suffix.starts_with('e') || suffix.starts_with('E')) {
    const auto power_of_ten = convert<int>(suffix.substr(suffix.substr(1).starts_with('+') ? 2 : 1));
    if (!power_of_ten || std::abs(*power_of_ten) > 30) return std::nullopt;
    exponent += *power_of_ten;
  } else if (!suffix.empty()) {
    return std::nullopt;
  }
  for (; exponent < 0 && !digits.empty() && digits.back() == '0'; ++exponent) digits.pop_back();
  if (exponent < 0) return digits.empty() ? std::optional<std::int64_t>(0) : std::nullopt;
  return convert<std::int64_t>(digits + std::string(static_cast<std::size_t>(exponent), '0'));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row[b.size()];
}

template <typename T>
T read_finite(const Node& node, std::string_view key, const Rule& rule) {
  std::optional<T> value;
  if (node.is(Node::Kind::scalar) && !node.quoted && !has_leading_zero(node.text))
    value = convert<T>(node.text);
  if (!value || !std::isfinite(*value) || !in_range(double(*value), rule))
    refuse(node, key, "a number" + range_text(rule));
  return *value;
}

}  // namespace

void refuse(const Node& node, std::string_view key, std::string_view expected) {
  fail("{}{}{}: expected {}, found {}", node.origin, node.origin.empty() ? "" : ": ", key, expected,
       found_text(node));
}

std::int64_t read_whole(const Node& node, std::string_view key, const Rule& rule) {
  std::optional<std::int64_t> value;
  if (node.is(Node::Kind::scalar) && !node.quoted && !has_leading_zero(node.text)) {
    value = convert<std::int64_t>(node.text);
    if (!value && rule.is_count) value = convert_count(node.text);
  }
  if (!value || !in_range(double(*value), rule))
    refuse(node, key,
           fmt::format("a whole number{}{}", range_text(rule),
                       rule.is_count ? " (1000, 10_000, 1e9, 100M, 1.5B and 10T are understood)" : ""));
  return *value;
}

std::uint64_t read_unsigned(const Node& node, std::string_view key) {
  std::optional<std::uint64_t> value;
  if (node.is(Node::Kind::scalar) && !node.quoted && !has_leading_zero(node.text))
    value = convert<std::uint64_t>(node.text);
  if (!value) refuse(node, key, "a whole number from 0 to 2^64 - 1");
  return *value;
}

double read_real(const Node& node, std::string_view key, const Rule& rule) {
  return read_finite<double>(node, key, rule);
}

float read_float(const Node& node, std::string_view key, const Rule& rule) {
  return read_finite<float>(node, key, rule);
}

bool read_bool(const Node& node, std::string_view key) {
  for (const std::string_view word : {"true", "True", "TRUE"})
    if (node.is_word(word)) return true;
  for (const std::string_view word : {"false", "False", "FALSE"})
    if (node.is_word(word)) return false;
  refuse(node, key, "true or false");
}

std::string read_string(const Node& node, std::string_view key, const Rule& rule) {
  const std::string expected = rule.choices.empty() ? "a text" : listed(rule.choices);
  if (!node.is(Node::Kind::scalar)) refuse(node, key, expected);
  // A run writes its configuration down, and could not read it again.
  TETRAD_CHECK(!find_invalid_utf8(node.text), "{}{}{} is {}, which is not UTF-8: rename what it names",
               node.origin, node.origin.empty() ? "" : ": ", key, shown(node.text));
  const auto& choices = rule.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), node.text) == choices.end())
    refuse(node, key, expected);
  return node.text;
}

std::string listed(const std::vector<std::string_view>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ", choices[i]);
  return text;
}

std::string nearest_hint(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 64;
  if (word.size() > kLongest) return "";
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  const std::string* best = nullptr;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    const std::size_t distance = edit_distance(word, candidate);
    // A word of which every letter had to change is no suggestion.
    if (distance >= best_distance || distance >= candidate.size()) continue;
    best_distance = distance;
    best = &candidate;
  }
  return best != nullptr ? fmt::format(" (did you mean '{}'?)", *best) : "";
}

}  // namespace tetrad::config
