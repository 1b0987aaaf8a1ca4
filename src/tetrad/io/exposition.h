// SPDX-License-Identifier: Apache-2.0
#pragma once
// A page of figures as Prometheus reads them: its text format 0.0.4.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tetrad {

inline constexpr const char* kExpositionType = "text/plain; version=0.0.4; charset=utf-8";

/// A family of samples after the other. Help texts are ours and need no escape.
class Exposition {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  /// `prefix` begins the name of every family.
  explicit Exposition(std::string_view prefix) : prefix_(prefix) {}

  void family(std::string_view name, std::string_view type, std::string_view help);
  /// `suffix` goes behind the family's name, as histograms need it.
  void sample(double value, const Labels& labels = {}, std::string_view suffix = {});
  void sample(std::int64_t value, const Labels& labels = {}, std::string_view suffix = {});

  template <typename Value>
  void gauge(std::string_view name, std::string_view help, Value value) {
    family(name, "gauge", help);
    sample(value);
  }
  template <typename Value>
  void counter(std::string_view name, std::string_view help, Value value) {
    family(name, "counter", help);
    sample(value);
  }
  std::string take() { return std::move(text_); }

 private:
  void add(const std::string& value, const Labels& labels, std::string_view suffix);

  std::string prefix_;
  std::string text_;
  std::string name_;
};

}  // namespace tetrad
