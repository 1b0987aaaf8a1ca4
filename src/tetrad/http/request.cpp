// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/request.h"

#include <algorithm>
#include <charconv>

#include "tetrad/http/ascii.h"

namespace tetrad {
namespace {

constexpr std::size_t kLongestChunkLine = 256;  //!< a size and perhaps extensions, which are ignored
constexpr std::size_t kFreeChunkLine = 20;      //!< what lines of sizes may have without being counted

[[noreturn]] void malformed(const std::string& what) { throw HttpError(400, "malformed request: " + what); }

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/// What names of methods and headers are made of.
bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return is_letter_or_digit(c) || kMarks.find(c) != std::string_view::npos;
  });
}

bool is_visible(char c) { return c > ' ' && c < '\x7F'; }

bool is_field_character(char c) {
  return is_visible(c) || c == ' ' || c == '\t' || static_cast<unsigned char>(c) >= 0x80;
}

bool is_host_character(char c) {
  return is_letter_or_digit(c) || std::string_view("-._~:[]").find(c) != std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Digits only, no sign; nothing if there is anything else or the number is too large.
std::optional<std::uint64_t> parse_number(std::string_view text, int base) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
  if (found == headers.end()) return std::nullopt;
  return found->second;
}

std::size_t RequestParser::feed(std::string_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && state_ != State::complete) {
    const std::string_view rest = bytes.substr(used);
    used += state_ == State::body || state_ == State::chunk ? take_data(rest) : take_line(rest);
  }
  return used;
}

std::size_t RequestParser::take_line(std::string_view bytes) {
  const std::size_t end = bytes.find('\n');
  const std::size_t size = end == std::string_view::npos ? bytes.size() : end + 1;
  const bool of_chunks = state_ == State::chunk_size || state_ == State::chunk_end;
  if (of_chunks && line_.size() + size > kLongestChunkLine) malformed("the line before a chunk is too long");
  if (!of_chunks) count(size);
  line_.append(bytes.substr(0, size));
  if (end == std::string_view::npos) return size;
  if (!line_.ends_with("\r\n")) malformed("a line does not end with CR LF");
  // Small chunks with long extensions would make a client's bytes many times the body.
  if (of_chunks && line_.size() > kFreeChunkLine) count(line_.size() - kFreeChunkLine);
  const std::string line = line_.substr(0, line_.size() - 2);
  line_.clear();
  read_line(line);
  return size;
}

void RequestParser::count(std::size_t bytes) {
  if (bytes > limits_.head - head_bytes_)
    throw HttpError(431, fmt::format("the request's head has more than {} bytes", limits_.head));
  head_bytes_ += bytes;
}

std::size_t RequestParser::take_data(std::string_view bytes) {
  const std::size_t size = std::min<std::uint64_t>(remaining_, bytes.size());
  request_.body.reserve(announced());
  request_.body.append(bytes.substr(0, size));
  remaining_ -= size;
  if (remaining_ == 0) state_ = state_ == State::chunk ? State::chunk_end : State::complete;
  return size;
}

void RequestParser::read_line(std::string_view line) {
  switch (state_) {
    case State::request_line:
      // An empty line before a request is to be overlooked; the limit of the head ends this.
      if (!line.empty()) read_request_line(line);
      break;
    case State::headers:
      if (line.empty())
        finish_head();
      else
        request_.headers.push_back(read_field(line));
      break;
    case State::chunk_size:
      read_chunk_size(line);
      break;
    case State::chunk_end:
      if (!line.empty()) malformed("a chunk is longer than it says");
      state_ = State::chunk_size;
      break;
    case State::trailers:
      if (line.empty())
        state_ = State::complete;
      else
        read_field(line);  // checked, and of no use
      break;
    default:
      break;
  }
}

void RequestParser::read_request_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    malformed("the first line is not METHOD TARGET HTTP/1.1");
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method)) malformed("the method is no word");
  // Also no absolute URL, which would name a second host beside that of the header.
  if (!target.starts_with('/') || !std::ranges::all_of(target, is_visible) ||
      target.find('#') < target.size())
    malformed("the target is no path that begins with /");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    if (!version.starts_with("HTTP/") || !std::ranges::all_of(version, is_visible))
      malformed("the first line does not end with HTTP/1.1");
    throw HttpError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
  }
  request_.http_1_1 = version == "HTTP/1.1";
  request_.method = method;
  request_.path = target.substr(0, target.find('?'));
  state_ = State::headers;
}

std::pair<std::string, std::string> RequestParser::read_field(std::string_view line) {
  if (++fields_ > limits_.headers)
    throw HttpError(431, fmt::format("the request has more than {} headers", limits_.headers));
  const std::size_t colon = line.find(':');
  // A line that begins with a space would continue the one before it; HTTP no longer allows that.
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    malformed("a header is not NAME: VALUE");
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!std::ranges::all_of(value, is_field_character)) malformed("a header has control characters");
  return {lower_case(line.substr(0, colon)), std::string(value)};
}

void RequestParser::read_chunk_size(std::string_view line) {
  const std::size_t end = std::min(line.find_first_of("; \t"), line.size());
  const std::optional<std::uint64_t> size = parse_number(line.substr(0, end), 16);
  const std::string_view rest = line.substr(end);
  if (!size || (!rest.empty() && !trimmed(rest).starts_with(';')) ||
      !std::ranges::all_of(line, is_field_character))
    malformed("the size of a chunk is no number");
  if (*size == 0)
    state_ = State::trailers;
  else
    expect_data(*size, State::chunk);
}

void RequestParser::expect_data(std::uint64_t size, State state) {
  if (size > limits_.body - request_.body.size())
    throw HttpError(413, fmt::format("the body has more than the {} bytes that are allowed", limits_.body));
  remaining_ = size;
  state_ = state;
}

/// The value of a header that may be there once.
std::optional<std::string_view> RequestParser::only(std::string_view name) const {
  const auto same = [&](const auto& field) { return field.first == name; };
  if (std::ranges::count_if(request_.headers, same) > 1)
    malformed(fmt::format("the header {} occurs twice", name));
  return request_.header(name);
}

void RequestParser::finish_head() {
  const auto host = only("host");
  if (request_.http_1_1 && !host) malformed("there is no Host header");
  if (host && !std::ranges::all_of(*host, is_host_character)) malformed("the Host header is no name");
  read_connection();
  if (const auto expectation = only("expect")) {
    if (lower_case(*expectation) != "100-continue")
      throw HttpError(417, "only 'Expect: 100-continue' is understood");
    request_.expects_continue = request_.http_1_1;
  }
  const auto length = only("content-length");
  const auto encoding = only("transfer-encoding");
  if (encoding) {
    if (length || !request_.http_1_1) malformed("Transfer-Encoding beside Content-Length or in HTTP/1.0");
    if (lower_case(*encoding) != "chunked")
      throw HttpError(501, "no other Transfer-Encoding than chunked is understood");
    state_ = State::chunk_size;
    return;
  }
  std::uint64_t size = 0;
  if (length) {
    const std::optional<std::uint64_t> number = parse_number(*length, 10);
    if (!number && (length->empty() || length->find_first_not_of("0123456789") != std::string_view::npos))
      malformed("Content-Length is no number");
    size = number.value_or(UINT64_MAX);
  }
  expect_data(size, size == 0 ? State::complete : State::body);
}

void RequestParser::read_connection() {
  request_.keep_alive = request_.http_1_1;
  for (const auto& [name, value] : request_.headers) {
    if (name != "connection") continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const std::string option = lower_case(trimmed(rest.substr(0, comma)));
      if (option == "close") {
        request_.keep_alive = false;
        return;
      }
      if (option == "keep-alive") request_.keep_alive = true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
}

}  // namespace tetrad
