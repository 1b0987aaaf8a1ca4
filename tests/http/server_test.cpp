// SPDX-License-Identifier: Apache-2.0
// The server over real sockets.

#include "tetrad/http/server.h"

#include <gtest/gtest.h>

#include "http/running_server.h"

namespace tetrad::testing {
namespace {

using std::chrono::milliseconds;

std::string get_from(const std::string& host) { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"; }
std::string old_get(const std::string& path) { return "GET " + path + " HTTP/1.0\r\n\r\n"; }

TEST(HttpServer, AnswersOneRequestAfterTheOther) {
  Running server;
  HttpClient client(server.port());
  const HttpAnswer first = client.get("/a?b=c");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "GET /a ");
  for (const char* header :
       {"Date: ", " GMT\r\n", "Content-Type: text/plain\r\n", "Connection: keep-alive\r\n"})
    EXPECT_NE(first.head.find(header), std::string::npos) << header << first.head;
  EXPECT_EQ(client.post("/b", "body").body, "POST /b body");
  EXPECT_EQ(client.get("/bad").status, 415) << "an error of the request, not of the connection";
  // Two at once, answered in order.
  client.send(HttpClient::post_request("/c", "1") + HttpClient::post_request("/d", "2"));
  EXPECT_EQ(client.receive()->body, "POST /c 1");
  EXPECT_EQ(client.receive()->body, "POST /d 2");
  const HttpAnswer last = client.ask("GET /e HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_NE(last.head.find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(client.is_closed_by_server());
  EXPECT_TRUE(server.handler.lines.happens("127.0.0.1 GET /e 200 7")) << "also if the log throws";
}

TEST(HttpServer, HeadIsGetWithoutBody) {
  Running server;
  HttpClient client(server.port());
  // The body of the first would be taken for the beginning of the second.
  client.send(
      "HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\nGET /b HTTP/1.1\r\nHost: localhost\r\nConnection: "
      "close\r\n\r\n");
  EXPECT_TRUE(client.is_closed_by_server());
  const std::string& all = client.received();
  EXPECT_NE(all.find("Content-Length: 7\r\n"), std::string::npos);
  EXPECT_NE(all.find("\r\n\r\nHTTP/1.1 200 OK\r\n"), std::string::npos);
  EXPECT_TRUE(all.ends_with("\r\n\r\nGET /b "));
}

TEST(HttpServer, TellsClientsToGoOn) {
  Running server;
  HttpClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.receive()->status, 100);
  EXPECT_EQ(client.ask("hi").body, "POST / hi");
}

TEST(HttpServer, RefusesAndStaysUp) {
  ServerOptions options;
  options.limits = {.head = 1000, .headers = 10, .body = 2000};
  Running server(options);
  const std::string head = "POST / HTTP/1.1\r\nHost: localhost\r\n";
  const std::string next = "GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::vector<std::pair<std::string, int>> requests = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/3.0\r\n\r\n", 505},
      {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\n", 10), 400},
      {head + "A: " + std::string(20000, 'x') + "\r\n\r\n", 431},
      {head + "Content-Length: 2001\r\n\r\n" + std::string(2001, 'x'), 413},
      {head + "Content-Length: 8000000\r\n\r\n" + std::string(8'000'000, 'x'), 413},
      // Where one reader sees a request and another the body of one before it.
      {head + "Content-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next, 400},
      {head + "Content-Length: 0\r\nContent-Length: 38\r\n\r\n" + next, 400},
      {head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + next, 501},
      {head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + next, 400},
      {head + "Transfer-Encoding: chunked\r\n\r\n0;\n\r\n\r\n" + next, 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next, 400}};
  for (const auto& [bytes, status] : requests) {
    HttpClient client(server.port());
    const HttpAnswer answer = client.ask(bytes);
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 100);
    EXPECT_NE(answer.body, "");
    EXPECT_TRUE(client.is_closed_by_server());
    EXPECT_EQ(client.received(), "") << "nothing after it is taken for a request";
  }
  EXPECT_EQ(server.get("/broken").status, 500);
  EXPECT_EQ(server.get("/full").status, 503);
  EXPECT_EQ(server.get("/").status, 200);
  EXPECT_EQ(server.handler.lines.count("127.0.0.1 GET /next 200 10"), 0U);
}

TEST(HttpServer, AnswersToNamesOfThisMachineOnly) {
  Running server;
  EXPECT_EQ(server.ask(get_from("localhost")).status, 200);
  EXPECT_EQ(server.ask(get_from("127.0.0.1:1234")).status, 200);
  EXPECT_EQ(server.ask(get_from("evil.example:8000")).status, 403);
  EXPECT_EQ(server.ask(get_from("")).status, 403);
  EXPECT_EQ(server.ask(old_get("/")).status, 200) << "HTTP/1.0 needs no Host, and no browser speaks it";
  ServerOptions options;
  options.address.host = "0.0.0.0";
  Running open(options);
  EXPECT_EQ(open.ask(get_from("machine.example")).status, 200) << "whoever lets others in has many names";
  options.any_name_from_outside = false;
  options.allowed_hosts = {"machine.example"};
  Running named(options);
  EXPECT_EQ(named.ask(get_from("Machine.example:8000")).status, 200);
  EXPECT_EQ(named.ask(get_from("10.1.2.3:8000")).status, 200) << "no name can be made to point here";
  EXPECT_EQ(named.ask(get_from("localhost")).status, 200);
  EXPECT_EQ(named.ask(get_from("evil.example")).status, 403);
  options.address.host = "127.0.0.1";
  Running local(options);
  EXPECT_EQ(local.ask(get_from("machine.example")).status, 200);
  EXPECT_EQ(local.ask(get_from("10.1.2.3")).status, 403);
  options.allowed_hosts = {"*"};
  EXPECT_EQ(Running(options).ask(get_from("evil.example")).status, 200);
}

TEST(HttpServer, SlowClientsAreCutOff) {
  ServerOptions options;
  options.request_timeout = milliseconds(200);
  options.idle_timeout = milliseconds(300);
  Running server(options);
  HttpClient in_head(server.port());
  HttpClient in_body(server.port());
  HttpClient silent(server.port());
  in_head.send("POST / HTTP/1.1\r\nHost: localhost\r\n");
  in_body.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(server.get("/").status, 200) << "nobody is held up";
  for (HttpClient* client : {&in_head, &in_body}) {
    const std::optional<HttpAnswer> answer = client->receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 408);
    EXPECT_TRUE(client->is_closed_by_server());
  }
  EXPECT_TRUE(silent.is_closed_by_server());
  EXPECT_EQ(silent.received(), "") << "nothing was asked, nothing is answered";
  // A byte now and then does not buy more time.
  HttpClient dripping(server.port());
  while (!dripping.has_something() && dripping.send("G")) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(dripping.receive()->status, 408);
}

TEST(HttpServer, NoticesClientsThatGoAway) {
  Running server;
  {
    HttpClient client(server.port());
    client.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(server.handler.events.happens("waits"));
  }
  EXPECT_TRUE(server.handler.events.happens("is gone"));
  EXPECT_TRUE(server.handler.lines.happens("127.0.0.1 GET /wait 499 4"));
  // Who has closed its half may have closed all of it: the work is dropped, and the client gets an answer.
  HttpClient half(server.port());
  half.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(server.handler.events.happens("waits", 2));
  half.shut_down_sending();
  EXPECT_EQ(half.receive()->status, 499);
  // What does not wait is answered.
  HttpClient quick(server.port());
  quick.send("GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n");
  quick.shut_down_sending();
  EXPECT_EQ(quick.receive()->status, 200);
  EXPECT_TRUE(quick.is_closed_by_server());
  // In the middle of a request.
  HttpClient(server.port()).send("POST / HTTP/1.1\r\nContent-Le");
  EXPECT_EQ(server.get("/").status, 200);
}

TEST(HttpServer, TooManyConnectionsAreRefused) {
  ServerOptions options;
  options.connections = 2;
  Running server(options);
  HttpClient first(server.port());
  HttpClient second(server.port());
  for (HttpClient* client : {&first, &second}) client->send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(server.handler.events.happens("waits", 2));
  const HttpAnswer refused = server.get("/");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body, "");
  // Many more, which hear nothing, break nothing.
  std::vector<std::unique_ptr<HttpClient>> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(std::make_unique<HttpClient>(server.port()));
  crowd.clear();
  server.handler.is_released = true;
  for (HttpClient* client : {&first, &second}) EXPECT_EQ(client->receive()->status, 200);
  EXPECT_EQ(first.get("/still").status, 200);
}

TEST(HttpServer, StreamsInChunks) {
  Running server;
  const std::string expected = "one" + std::string(100000, 'x');
  HttpClient client(server.port());
  for (int i = 0; i < 2; ++i) {
    const HttpAnswer answer = client.get("/stream");
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body == expected);
    EXPECT_EQ(answer.head.find("Content-Length"), std::string::npos);
  }
  EXPECT_EQ(client.get("/stream/bad").status, 400) << "nothing was sent: the status can still be chosen";
  EXPECT_EQ(client.get("/after").status, 200);
  client.send("GET /stream/broken HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_FALSE(client.receive()) << "no last chunk: a part is not the whole";

  HttpClient old(server.port());
  old.send(old_get("/stream"));
  EXPECT_TRUE(old.is_closed_by_server());
  EXPECT_EQ(old.received().find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(old.received().ends_with("\r\n\r\n" + expected));
}

TEST(HttpServer, StreamsEndWithTheirClients) {
  Running server;
  {
    HttpClient client(server.port());
    client.send("GET /stream/endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (client.received().size() < 200000) ASSERT_TRUE(client.receive_some());
  }
  EXPECT_TRUE(server.handler.events.happens("stream ends"));
  HttpClient reads_nothing(server.port());
  reads_nothing.send("GET /stream/endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
  server.stop();
  EXPECT_LE(server.handler.events.count("stream ends"), 2U) << "stops all the same";
}

TEST(HttpServer, RequestsUnderWayEndAsToldWhenItStops) {
  // In the time of grace.
  Running patient({}, {.grace = std::chrono::seconds(10)});
  HttpClient idle(patient.port());
  EXPECT_EQ(idle.get("/").status, 200);
  HttpClient client(patient.port());
  client.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(patient.handler.events.happens("waits"));
  patient.ask_to_stop();
  EXPECT_TRUE(idle.is_closed_by_server());
  patient.handler.is_released = true;
  EXPECT_EQ(client.receive()->status, 200);
  client.shut_down_sending();
  patient.stop();
  EXPECT_FALSE(HttpClient(patient.port()).is_connected());

  // With an error.
  Handler* handler = nullptr;
  Running strict({}, {.grace = milliseconds(1), .give_up = [&] { handler->gives_up = true; }});
  handler = &strict.handler;
  HttpClient told(strict.port());
  told.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(strict.handler.events.happens("waits"));
  strict.ask_to_stop();
  EXPECT_EQ(told.receive()->status, 503);
  told.shut_down_sending();
  strict.stop();

  // At once.
  Running hasty;
  HttpClient cut(hasty.port());
  cut.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(hasty.handler.events.happens("waits"));
  hasty.stop();
  EXPECT_TRUE(cut.is_closed_by_server());
}

TEST(HttpServer, WhoeverComesBeforeItRunsWaits) {
  HttpServer server(ServerOptions{});
  HttpClient client(server.port());
  ASSERT_TRUE(client.is_connected());
  client.send("GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n");
  Handler handler;
  std::atomic<bool> stop = false;
  std::thread thread([&] { server.run(handler, [&] { return stop.load(); }, {}); });
  EXPECT_EQ(client.receive()->body, "GET /early ");
  stop = true;
  thread.join();
}

TEST(HttpServer, SaysWhyItCannotListen) {
  HttpServer server(ServerOptions{});
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(server.port()));
  ServerOptions options;
  options.address.port = server.port();
  EXPECT_THROW(HttpServer{options}, Error);
  options.address = {"no such host", 0};
  EXPECT_THROW(HttpServer{options}, Error);
  options.address = {"203.0.113.7", 0};  // kept for examples: no machine has it
  EXPECT_THROW(HttpServer{options}, Error);
}

}  // namespace
}  // namespace tetrad::testing
