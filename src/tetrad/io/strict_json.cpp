// SPDX-License-Identifier: Apache-2.0
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

/// Looks at the text piece by piece before a value is made of it: the library itself keeps the last of two
/// members with the same key. (Its callbacks for this take a time that is quadratic in a list of objects.)
class Watch final : public Json::json_sax_t {
 public:
  Watch(std::string_view where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    if (++members_ > limits_.members) fail("{}: more than {} members of objects", where_, limits_.members);
    if (!keys_.back().insert(key).second)
      fail("{}: an object has the key {} twice; remove one", where_, quoted_name(key));
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) fail("{}: not valid JSON (a number that is too large)", where_);
    fail("{}: not valid JSON (byte {})", where_, position);
  }

 private:
  bool count() {
    if (++values_ > limits_.values) fail("{}: more than {} values", where_, limits_.values);
    return true;
  }

  bool open() {
    if (std::ssize(keys_) >= limits_.depth)
      fail("{}: more than {} nested objects and lists; the file is damaged or not meant for Tetrad", where_,
           limits_.depth);
    keys_.emplace_back();
    return count();
  }

  bool close() {
    keys_.pop_back();
    return true;
  }

  std::string_view where_;
  const JsonLimits& limits_;
  std::size_t values_ = 0;
  std::size_t members_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;  //!< keys seen so far, for each open object or list
};

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  TETRAD_CHECK(text.size() <= limits.bytes, "{}: {} bytes of JSON are more than the allowed {}", where,
               text.size(), limits.bytes);
  if (const auto bad = find_invalid_utf8(text)) fail("{}: not valid UTF-8 (byte {})", where, *bad);
  // The JSON library takes a zero byte for the end of its input and would not look at what follows it.
  TETRAD_CHECK(text.find('\0') == text.npos, "{}: not valid JSON (zero byte at byte {})", where,
               text.find('\0'));
  Watch watch(where, limits);
  Json::sax_parse(text.begin(), text.end(), &watch);
  return Json::parse(text.begin(), text.end());
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
