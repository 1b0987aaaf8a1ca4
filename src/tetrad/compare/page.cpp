// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "tetrad/compare/page_parts.h"
#include "tetrad/compare/report.h"
#include "tetrad/io/json_text.h"

namespace tetrad {
namespace {

/// JSON that may stand in a script element: without a '<' nothing in it looks like a tag.
std::string inside_script(const nlohmann::json& json) {
  std::string text;
  for (const char c : json_text(json))
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  return text;
}

/// The text before a placeholder, which `rest` then begins behind.
std::string_view take_until(std::string_view& rest, std::string_view placeholder) {
  const std::size_t at = rest.find(placeholder);
  const std::string_view before = rest.substr(0, at);
  rest.remove_prefix(at + placeholder.size());
  return before;
}

}  // namespace

std::string make_page(const nlohmann::json& report) {
  // Piece by piece: what is put in may itself hold the text of a placeholder.
  std::string_view rest = kPageHtml;
  std::string page(take_until(rest, "/*STYLE*/"));
  page += kPageStyle;
  page += take_until(rest, "/*REPORT*/");
  page += inside_script(report);
  page += take_until(rest, "/*SCRIPT*/");
  page += kPageScript;
  return page.append(rest);
}

}  // namespace tetrad
