#include "tetrad/io/strict_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;
using Event = Json::parse_event_t;

/// Watches the parser: the library itself keeps the last of two members with the same key.
class Watch {
 public:
  Watch(std::string_view where, int max_depth) : where_(where), max_depth_(max_depth) {}

  bool operator()(int depth, Event event, const Json& parsed) {
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= max_depth_)
        fail("{}: more than {} nested objects and lists; the file is damaged or not meant for Tetrad", where_,
             max_depth_);
      keys_.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second)
        fail("{}: an object has the key {} twice; remove one", where_, quoted_name(key));
    }
    return true;
  }

 private:
  std::string_view where_;
  int max_depth_;
  std::vector<std::unordered_set<std::string>> keys_;  //!< Of the objects that are open.
};

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  TETRAD_CHECK(text.size() <= limits.bytes, "{}: {} bytes of JSON are more than the allowed {}", where,
               text.size(), limits.bytes);
  if (const auto bad = find_invalid_utf8(text)) fail("{}: not valid UTF-8 (byte {})", where, *bad);
  // The JSON library takes a zero byte for the end of its input and would not look at what follows it.
  TETRAD_CHECK(text.find('\0') == text.npos, "{}: not valid JSON (zero byte at byte {})", where,
               text.find('\0'));
  try {
    return Json::parse(text.begin(), text.end(), Watch(where, limits.depth));
  } catch (const Json::parse_error& error) {
    fail("{}: not valid JSON (byte {})", where, error.byte);
  } catch (const Json::exception&) {
    fail("{}: not valid JSON (a number that is too large)", where);
  }
}

nlohmann::json read_strict_json(const std::filesystem::path& path, const JsonLimits& limits) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return parse_strict_json(text, fmt::format("{:?}", path.native()), limits);
}

const nlohmann::json& member_of(const nlohmann::json& object, std::string_view key) {
  static const Json null;
  const auto found = object.find(key);
  return object.is_object() && found != object.end() ? *found : null;
}

std::int64_t checked_integer(const nlohmann::json& value, std::string_view what, std::int64_t low,
                             std::int64_t high) {
  // An unsigned number beyond 2^63 - 1 would come back negative.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
  const std::int64_t number = fits ? value.get<std::int64_t>() : 0;
  TETRAD_CHECK(fits && number >= low && number <= high, "{} must be a whole number from {} to {}", what, low,
               high);
  return number;
}

}  // namespace tetrad
