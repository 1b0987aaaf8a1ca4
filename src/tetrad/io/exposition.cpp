// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/exposition.h"

#include <fmt/format.h>

#include <cmath>

namespace tetrad {
namespace {

/// Backslash, line feed and, in the value of a label, the quote.
std::string escaped_label(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n')
      result += "\\n";
    else if (c == '\\' || c == '"')
      result += {'\\', c};
    else
      result += c;
  }
  return result;
}

}  // namespace

void Exposition::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = fmt::format("{}{}", prefix_, name);
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, help, name_, type);
}

void Exposition::sample(double value, const Labels& labels, std::string_view suffix) {
  if (std::isnan(value)) return add("NaN", labels, suffix);
  if (std::isinf(value)) return add(value > 0 ? "+Inf" : "-Inf", labels, suffix);
  add(fmt::format("{}", value), labels, suffix);
}

void Exposition::sample(std::int64_t value, const Labels& labels, std::string_view suffix) {
  add(fmt::format("{}", value), labels, suffix);
}

void Exposition::add(const std::string& value, const Labels& labels, std::string_view suffix) {
  text_ += fmt::format("{}{}", name_, suffix);
  for (std::size_t i = 0; i < labels.size(); ++i)
    text_ += fmt::format("{}{}=\"{}\"", i == 0 ? '{' : ',', labels[i].first, escaped_label(labels[i].second));
  text_ += fmt::format("{} {}\n", labels.empty() ? "" : "}", value);
}

}  // namespace tetrad
