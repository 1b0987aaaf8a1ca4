// SPDX-License-Identifier: Apache-2.0
// The request parser: what it reads, what it refuses, and that pieces make no difference.

#include "tetrad/http/request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tetrad {
namespace {

constexpr HttpLimits kSmallLimits = {.head = 300, .headers = 5, .body = 20};

HttpRequest parse(const std::string& bytes, const HttpLimits& limits = {}) {
  RequestParser parser(limits);
  EXPECT_EQ(parser.feed(bytes), bytes.size()) << bytes;
  EXPECT_TRUE(parser.complete()) << bytes;
  return parser.request();
}

/// The status with which the bytes are refused; 0 if they are not.
int refusal(const std::string& bytes, const HttpLimits& limits = kSmallLimits) {
  RequestParser parser(limits);
  try {
    parser.feed(bytes);
  } catch (const HttpError& error) {
    EXPECT_STRNE(error.what(), "");
    return error.status();
  }
  return 0;
}

std::string get(const std::string& headers) { return "GET / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n"; }
std::string chunked(const std::string& chunks) {
  return "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunks;
}

TEST(RequestParser, ReadsRequestLineAndHeaders) {
  const HttpRequest request = parse(
      "GET /v1/models?limit=1 HTTP/1.1\r\nHost: localhost:8000\r\nX-Empty:\r\nAuthorization: Bearer \r\n"
      "x-odd_name: \t a b\t \r\n\r\n");
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/v1/models");
  EXPECT_EQ(request.header("host"), "localhost:8000");
  EXPECT_EQ(request.header("x-empty"), "");
  EXPECT_EQ(request.header("authorization"), "Bearer");
  EXPECT_EQ(request.header("x-odd_name"), "a b");
  EXPECT_EQ(request.header("content-length"), std::nullopt);
  EXPECT_EQ(request.body, "");
}

TEST(RequestParser, ReadsBodies) {
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel\no").body, "hel\no");
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").body, "");
  EXPECT_EQ(parse(chunked("5\r\nhello\r\n00A ; name=\"value\"\r\n0123456789\r\n0\r\n\r\n")).body,
            "hello0123456789");
  EXPECT_EQ(parse(chunked("1\r\n\r\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n")).body, "\r");
}

TEST(RequestParser, KnowsWhetherTheConnectionStays) {
  EXPECT_TRUE(parse(get("")).keep_alive);
  EXPECT_TRUE(parse(get("Connection: upgrade, Keep-Alive\r\n")).keep_alive);
  EXPECT_FALSE(parse(get("Connection: Close\r\n")).keep_alive);
  EXPECT_FALSE(parse(get("Connection: keep-alive\r\nConnection: x , close,\r\n")).keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
}

TEST(RequestParser, LeavesWhatComesAfterTheRequest) {
  RequestParser parser({});
  const std::string first = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
  EXPECT_FALSE(parser.started());
  EXPECT_EQ(parser.feed(first + "GET /next"), first.size());
  EXPECT_TRUE(parser.complete());
  EXPECT_EQ(parser.feed("more"), 0U);
  EXPECT_EQ(parse("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").method, "GET") << "empty lines before it";
}

TEST(RequestParser, SaysWhenTheClientWaitsForLeave) {
  RequestParser parser({});
  parser.feed("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n");
  EXPECT_FALSE(parser.head_complete());
  parser.feed("\r\n");
  EXPECT_TRUE(parser.head_complete());
  EXPECT_FALSE(parser.complete());
  EXPECT_TRUE(parser.request().expects_continue);
}

TEST(RequestParser, PiecesMakeNoDifference) {
  const std::string bytes = chunked("5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nT: 1\r\n\r\n");
  const HttpRequest whole = parse(bytes);
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    RequestParser parser({});
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      EXPECT_FALSE(parser.complete());
      parser.feed(std::string_view(bytes).substr(at, size));
    }
    EXPECT_TRUE(parser.complete());
    EXPECT_EQ(parser.request().body, whole.body);
    EXPECT_EQ(parser.request().headers, whole.headers);
  }
}

TEST(RequestParser, EveryBeginningIsIncomplete) {
  const std::string bytes = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    RequestParser parser({});
    parser.feed(bytes.substr(0, size));
    EXPECT_FALSE(parser.complete()) << size;
  }
}

TEST(RequestParser, RefusesMalformedRequests) {
  const std::vector<std::string> cases = {
      // the first line
      "GET\r\n", "GET /\r\n", "GET / HTTP\r\n", "GET  HTTP/1.1\r\n", " GET / HTTP/1.1\r\n",
      "G(T / HTTP/1.1\r\n", "GET x HTTP/1.1\r\n", "GET http://a/ HTTP/1.1\r\n", "GET /a b HTTP/1.1\r\n",
      "GET /\x01 HTTP/1.1\r\n", "GET /\xC3\xA4 HTTP/1.1\r\n", "GET / HTTP/1.1 \r\n", "GET / HTTP/1.1\n",
      "GET / \rHTTP/1.1\r\n", "GET /a#b HTTP/1.1\r\n", "\x16\x03\x01\x02\n", "GET / HTTP/1.1\r\r\n",
      // headers
      get("no colon\r\n"), get(": no name\r\n"), get("Space : a\r\n"), get(" Folded: a\r\n"),
      get("A: \x01\r\n"), get("A: a\rb\r\n"), get("A: \x7F\r\n"), get("A: a\n"),
      get(std::string("A: \0\r\n", 6)), get("H\xC3: a\r\n"), get("Host: b\r\n"), "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
      // how long the body is
      get("Content-Length: -1\r\n"), get("Content-Length: +1\r\n"), get("Content-Length: 0x1\r\n"),
      get("Content-Length: 1 1\r\n"), get("Content-Length: \r\n"), get("Content-Length: 1, 1\r\n"),
      get("Content-Length: 1\r\nContent-Length: 1\r\n"),
      get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
      get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
      "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
      // chunks
      chunked("x\r\n"), chunked("\r\n"), chunked("-1\r\n"), chunked("0x1\r\n"), chunked("1 1\r\n"),
      chunked("1 \r\n"), chunked(" 1\r\n"), chunked("+1\r\n"), chunked("1\n"), chunked("1\r\nab\r\n"),
      chunked("1\r\na0\r\n"), chunked("10000000000000000\r\n"), chunked("1;\x01\r\n"),
      chunked(std::string(400, '0')), chunked("1;" + std::string(400, 'x')), chunked("0\r\nbad trailer\r\n")};
  for (const std::string& bytes : cases) EXPECT_EQ(refusal(bytes), 400) << ::testing::PrintToString(bytes);
}

TEST(RequestParser, RefusesWhatItDoesNotSpeak) {
  EXPECT_EQ(refusal("GET / HTTP/2.0\r\n"), 505);
  EXPECT_EQ(refusal("PRI * HTTP/2.0\r\n"), 400);
  EXPECT_EQ(refusal(get("Transfer-Encoding: gzip, chunked\r\n")), 501);
  EXPECT_EQ(refusal(get("Expect: miracles\r\n")), 417);
}

TEST(RequestParser, KeepsToItsLimits) {
  const auto length = [](const std::string& n) { return get("Content-Length: " + n + "\r\n"); };
  EXPECT_EQ(refusal(length("20")), 0);
  EXPECT_EQ(refusal(length("21")), 413);
  EXPECT_EQ(refusal(length("18446744073709551615")), 413);
  EXPECT_EQ(refusal(length("99999999999999999999999")), 413);
  EXPECT_EQ(refusal(chunked("14\r\n")), 0);
  EXPECT_EQ(refusal(chunked("15\r\n")), 413);
  EXPECT_EQ(refusal(chunked("a\r\n0123456789\r\nb\r\n")), 413) << "all chunks together";
  EXPECT_EQ(refusal(chunked("ffffffffffffffff\r\n")), 413);
  EXPECT_EQ(refusal(get("A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\n")), 0);
  EXPECT_EQ(refusal(get("A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\nE: 1\r\n")), 431);
  EXPECT_EQ(refusal(get("A: " + std::string(300, 'x') + "\r\n")), 431);
  EXPECT_EQ(refusal("GET /" + std::string(300, 'x')), 431) << "before the line ends";
  EXPECT_EQ(refusal(std::string(301, '\r')), 431);
  std::string empty_lines;
  for (int i = 0; i < 200; ++i) empty_lines += "\r\n";
  EXPECT_EQ(refusal(empty_lines), 431);
  EXPECT_EQ(refusal(chunked("0\r\nT: " + std::string(300, 'x'))), 431) << "trailers count too";
  const std::string extended = "1;" + std::string(100, 'x') + "\r\na\r\n";
  EXPECT_EQ(refusal(chunked(extended)), 0);
  EXPECT_EQ(refusal(chunked(extended + extended + extended)), 431) << "and extensions of chunks";
}

}  // namespace
}  // namespace tetrad
