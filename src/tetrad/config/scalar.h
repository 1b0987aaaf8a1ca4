// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers and words of a configuration: what a key accepts, and how it is read and written.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/config/node.h"

namespace tetrad::config {

/// What a key accepts beyond its type.
struct Rule {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                      //!< min itself is refused
  bool below_max = false;                      //!< max itself is refused
  bool is_count = false;                       //!< whole numbers may be written 1e9, 10_000, 100M, 1.5B, 10T
  std::vector<std::string_view> choices = {};  //!< valid words; empty: any text
};

inline Rule at_least(double min) { return {.min = min}; }
inline Rule above(double min) { return {.min = min, .above_min = true}; }
inline Rule between(double min, double max) { return {.min = min, .max = max}; }
/// min ≤ value < max
inline Rule from_below(double min, double max) { return {.min = min, .max = max, .below_max = true}; }
inline Rule count() { return {.min = 0, .is_count = true}; }
inline Rule one_of(std::vector<std::string_view> choices) { return {.choices = std::move(choices)}; }

/// Throws Error "origin: key: expected …, found …".
[[noreturn]] void refuse(const Node& node, std::string_view key, std::string_view expected);

std::int64_t read_whole(const Node& node, std::string_view key, const Rule& rule);
std::uint64_t read_unsigned(const Node& node, std::string_view key);
double read_real(const Node& node, std::string_view key, const Rule& rule);
float read_float(const Node& node, std::string_view key, const Rule& rule);
bool read_bool(const Node& node, std::string_view key);
std::string read_string(const Node& node, std::string_view key, const Rule& rule);

/// "a, b or c"
std::string listed(const std::vector<std::string_view>& choices);

/// " (did you mean 'steps'?)" if one of the candidates is near, else nothing.
std::string nearest_hint(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tetrad::config
