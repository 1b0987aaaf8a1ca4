// SPDX-License-Identifier: Apache-2.0
// Clients that take their time do not take that of others: every connection ends.

#include "http/running_server.h"

namespace tetrad::testing {
namespace {

TEST(ServerDeadlines, WhoTakesNothingIsLeft) {
  ServerOptions options;
  options.send_timeout = milliseconds(200);
  Running server(options);
  HttpClient client(server.port());
  client.send("GET /stream/flood HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(server.handler.events.happens("stream ends"));
  EXPECT_TRUE(client.is_closed_by_server());
}

/// Also if there would be time for all of it.
TEST(ServerDeadlines, WhoTakesNothingOfMuchIsLeft) {
  ServerOptions options;
  options.send_timeout = milliseconds(200);
  Running server(options);
  HttpClient client(server.port(), 4096);
  client.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(server.handler.lines.happens("127.0.0.1 GET /large 200 67108864"));
  EXPECT_TRUE(comes([&] { return server.memory().held() < std::size_t{3} << 20; }));
}

/// Each piece of a stream gives no new time.
TEST(ServerDeadlines, WhoTakesAByteNowAndThenIsLeftToo) {
  ServerOptions options;
  options.send_timeout = milliseconds(300);
  Running server(options);
  HttpClient client(server.port(), 4096);
  client.send("GET /stream/flood HTTP/1.1\r\nHost: localhost\r\n\r\n");
  while (client.receive_some(1) && server.handler.events.count("stream ends") == 0)
    std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(server.handler.events.count("stream ends"), 1U);
}

TEST(ServerDeadlines, IdleConnectionsEnd) {
  ServerOptions options;
  options.idle_timeout = milliseconds(100);
  options.connections = 2;
  Running server(options);
  HttpClient silent(server.port());
  HttpClient done(server.port());
  EXPECT_EQ(done.get("/").status, 200);
  EXPECT_TRUE(silent.is_closed_by_server());
  EXPECT_TRUE(done.is_closed_by_server());
  EXPECT_TRUE(comes([&] { return server.get("/").status == 200; })) << "their places become free";
}

/// Nobody is refused for the sake of connections that nobody uses.
TEST(ServerDeadlines, IdleConnectionsMakeRoom) {
  ServerOptions options;
  options.connections = 2;
  Running server(options);
  HttpClient first(server.port());
  EXPECT_EQ(first.get("/").status, 200);
  HttpClient busy(server.port());
  busy.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(server.handler.events.happens("waits"));
  std::this_thread::sleep_for(milliseconds(1100));
  EXPECT_EQ(server.get("/").status, 200);
  EXPECT_TRUE(first.is_closed_by_server());
  server.handler.is_released = true;
  EXPECT_EQ(busy.receive()->status, 200) << "whoever waits for an answer gets it";
}

}  // namespace
}  // namespace tetrad::testing
