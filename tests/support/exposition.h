// SPDX-License-Identifier: Apache-2.0
#pragma once
// A reader of Prometheus' text format 0.0.4 that takes nothing but what the format says, in the order that it
// recommends: HELP, TYPE, and then all samples of a family.

#include <charconv>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tetrad::testing {

class Exposition {
 public:
  using Labels = std::map<std::string, std::string>;

  bool has(const std::string& name) const { return samples_.contains(name); }
  double value(const std::string& name, const Labels& labels = {}) const {
    return samples_.at(name).at(labels);
  }
  /// Value of a family with one sample.
  Labels labels(const std::string& name) const {
    if (samples_.at(name).size() != 1) throw std::runtime_error(name + " has several samples");
    return samples_.at(name).begin()->first;
  }

 private:
  friend Exposition parse_exposition(std::string_view text);
  std::map<std::string, std::map<Labels, double>> samples_;
};

namespace exposition {

[[noreturn]] inline void fail(std::string_view line) {
  throw std::runtime_error("no exposition: " + std::string(line));
}

/// Of those that Prometheus takes, the ones that we use: no capitals, no colons.
inline bool is_name(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (const char c : text)
    if (c != '_' && (c < 'a' || c > 'z') && !is_digit(c)) return false;
  return !text.empty() && !is_digit(text.front());
}

/// Up to the quote that ends it, which is taken off `rest` with it.
inline std::string unescaped(std::string_view& rest, std::string_view line) {
  std::string value;
  while (!rest.starts_with('"')) {
    if (rest.empty()) fail(line);
    const bool is_escape = rest[0] == '\\';
    if (is_escape && (rest.size() < 2 || std::string_view("\\\"n").find(rest[1]) == std::string_view::npos))
      fail(line);
    value += !is_escape ? rest[0] : rest[1] == 'n' ? '\n' : rest[1];
    rest.remove_prefix(is_escape ? 2 : 1);
  }
  rest.remove_prefix(1);
  return value;
}

inline Exposition::Labels read_labels(std::string_view& rest, std::string_view line) {
  Exposition::Labels labels;
  do {
    rest.remove_prefix(1);  // { or ,
    const std::size_t equals = rest.find("=\"");
    if (equals == std::string_view::npos || !is_name(rest.substr(0, equals))) fail(line);
    const std::string name(rest.substr(0, equals));
    rest.remove_prefix(equals + 2);
    if (!labels.emplace(name, unescaped(rest, line)).second) fail(line);
  } while (rest.starts_with(','));
  if (!rest.starts_with('}')) fail(line);
  rest.remove_prefix(1);
  return labels;
}

inline double read_value(std::string_view rest, std::string_view line) {
  if (!rest.starts_with(' ')) fail(line);
  rest.remove_prefix(1);
  if (rest == "NaN") return std::stod("nan");
  if (rest == "+Inf" || rest == "-Inf") return std::stod(std::string(rest));
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (rest.empty() || error != std::errc() || end != rest.data() + rest.size()) fail(line);
  return value;
}

}  // namespace exposition

inline Exposition parse_exposition(std::string_view text) {
  Exposition result;
  std::set<std::string> families;
  std::string helped, family;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (end == std::string_view::npos) exposition::fail(line);
    text.remove_prefix(end + 1);
    constexpr std::string_view kHelp = "# HELP ";
    constexpr std::string_view kType = "# TYPE ";
    if (line.starts_with(kHelp)) {
      const std::string_view rest = line.substr(kHelp.size());
      helped = rest.substr(0, rest.find(' '));
      const bool is_whole = family.empty() || result.has(family);
      if (!is_whole || !exposition::is_name(helped) || rest.find('\\') != std::string_view::npos)
        exposition::fail(line);
      if (!families.insert(helped).second) exposition::fail(line);
    } else if (line.starts_with(kType)) {
      const bool is_counter = helped.ends_with("_total");
      if (line != std::string(kType) + helped + (is_counter ? " counter" : " gauge")) exposition::fail(line);
      family = helped;
    } else {
      const std::size_t size = line.find_first_of("{ ");
      if (family.empty() || helped != family || line.substr(0, size) != family) exposition::fail(line);
      std::string_view rest = line.substr(family.size());
      const Exposition::Labels labels =
          rest.starts_with('{') ? exposition::read_labels(rest, line) : Exposition::Labels();
      if (!result.samples_[family].emplace(labels, exposition::read_value(rest, line)).second)
        exposition::fail(line);
    }
  }
  if (!family.empty() && !result.has(family)) exposition::fail("a family without samples");
  return result;
}

}  // namespace tetrad::testing
