#include <nlohmann/json.hpp>

#include "tetrad/compare/page_parts.h"
#include "tetrad/compare/report.h"

namespace tetrad {
namespace {

void replace(std::string& text, std::string_view placeholder, std::string_view by) {
  text.replace(text.find(placeholder), placeholder.size(), by);
}

/// Text that may stand in a script element: nothing in it ends the element.
std::string inside_script(std::string json) {
  for (std::size_t at = 0; (at = json.find("</", at)) != std::string::npos; at += 3)
    json.insert(at + 1, 1, '\\');
  for (std::size_t at = 0; (at = json.find("<!--", at)) != std::string::npos; at += 9)
    json.replace(at, 1, "\\u003c");
  return json;
}

}  // namespace

std::string make_page(const nlohmann::json& report) {
  std::string page(kPageHtml);
  replace(page, "/*STYLE*/", kPageStyle);
  replace(page, "/*SCRIPT*/", kPageScript);
  replace(page, "/*REPORT*/",
          inside_script(report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  return page;
}

}  // namespace tetrad
