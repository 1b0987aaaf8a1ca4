// SPDX-License-Identifier: Apache-2.0
// What requests take is counted, bounded and given back.

#include "tetrad/http/memory_budget.h"

#include "http/running_server.h"

namespace tetrad::testing {
namespace {

int status_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const HttpError& error) {
    return error.status();
  }
  return 0;
}

TEST(MemoryBudget, HoldsWhatSharesHold) {
  MemoryBudget budget(100);
  {
    MemoryShare first(budget);
    MemoryShare second(budget);
    first.reserve(60);
    first.reserve(50);
    EXPECT_EQ(first.bytes(), 60U) << "less is held already";
    second.add(30);
    second.add(10);
    EXPECT_EQ(budget.held(), 100U);
    EXPECT_EQ(status_of([&] { second.add(1); }), 503);
    EXPECT_EQ(second.bytes(), 40U) << "what is refused is not held";
    EXPECT_EQ(status_of([&] { second.reserve(101); }), 413) << "no waiting helps";
    first.hold_exactly(10);
    EXPECT_EQ(budget.held(), 50U);
    second.hold_exactly(200);
    EXPECT_EQ(budget.held(), 210U) << "what exists is counted";
    EXPECT_EQ(status_of([&] { first.add(1); }), 503);
  }
  EXPECT_EQ(budget.held(), 0U);
  EXPECT_EQ(budget.peak(), 210U);
}

TEST(MemoryBudget, SomeIsSetAside) {
  MemoryBudget budget(100, 30);
  EXPECT_EQ(budget.held(), 30U);
  MemoryShare share(budget);
  EXPECT_EQ(status_of([&] { share.reserve(71); }), 413);
  share.reserve(70);
  EXPECT_EQ(budget.held(), 100U);
}

TEST(MemoryBudget, IsNeverExceededByManyAtOnce) {
  constexpr std::size_t kLimit = 1000;
  MemoryBudget budget(kLimit);
  std::vector<std::thread> threads;
  std::atomic<int> taken = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < 20000; ++i) {
        MemoryShare share(budget);
        taken += status_of([&] { share.reserve(1 + i % 700); }) == 0 ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.held(), 0U);
  EXPECT_LE(budget.peak(), kLimit);
  EXPECT_GT(taken, 20000 / 2);
}

std::string head_of(const std::string& path, std::size_t body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body) +
         "\r\n\r\n";
}

constexpr std::size_t kMegabyte = 1'000'000;

TEST(ServerMemory, BodiesAreRefusedBeforeTheyAreRead) {
  ServerOptions options;
  options.memory = 12 * kMegabyte;
  Running server(options);
  HttpClient first(server.port());
  first.send(head_of("/", 4 * kMegabyte) + "x");
  HttpClient second(server.port());
  second.send(head_of("/", 4 * kMegabyte) + "x");
  ASSERT_TRUE(comes([&] { return server.memory().held() >= 10 * kMegabyte; }));
  HttpClient third(server.port());
  EXPECT_EQ(third.ask(head_of("/", 4 * kMegabyte)).status, 503) << "the head alone was sent";
  EXPECT_TRUE(third.is_closed_by_server());
  HttpClient in_chunks(server.port());
  EXPECT_EQ(in_chunks
                .ask("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
                     std::string("3D0900\r\nx"))
                .status,
            503)
      << "as soon as a chunk is announced";
  HttpClient polite(server.port());
  EXPECT_EQ(polite
                .ask("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: "
                     "4000000\r\n\r\n")
                .status,
            503);
  EXPECT_EQ(server.get("/").status, 200) << "what is small is never refused";
  first.send(std::string(4 * kMegabyte - 1, 'x'));
  EXPECT_EQ(first.receive()->status, 200);
  EXPECT_EQ(HttpClient(server.port()).post("/", std::string(kMegabyte, 'y')).status, 200) << "there is room";
}

TEST(ServerMemory, IsWhatTheHandlerSays) {
  ServerOptions options;
  options.memory = 10 * kMegabyte;
  Running server(options);
  EXPECT_EQ(server.ask(head_of("/costly", kMegabyte)).status, 413) << "ten times that, which never fits";
  EXPECT_EQ(HttpClient(server.port()).post("/costly", std::string(kMegabyte / 2, 'x')).status, 200);
  EXPECT_GE(server.memory().peak(), 5 * kMegabyte);
  EXPECT_EQ(HttpClient(server.port()).post("/hungry", "5000000").status, 200);
  EXPECT_EQ(HttpClient(server.port()).post("/hungry", "50000000").status, 413);
  EXPECT_EQ(server.ask(head_of("/forbidden", kMegabyte)).status, 401) << "nothing of the body is waited for";
}

TEST(ServerMemory, AnswersCountUntilTheyAreSent) {
  Running server;
  HttpClient reader(server.port());
  reader.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(comes([&] { return server.memory().held() >= std::size_t{64} << 20; }));
  EXPECT_EQ(reader.receive()->body.size(), std::size_t{64} << 20);
  EXPECT_TRUE(server.handler.lines.happens("127.0.0.1 GET /large 200 67108864"));
  reader.get("/");
  EXPECT_TRUE(comes([&] { return server.memory().held() < std::size_t{3} << 20; }));
}

/// Whoever comes with however much: the count is bounded, everybody is answered, and all of it comes back.
TEST(ServerMemory, ACrowdStaysWithinIt) {
  ServerOptions options;
  options.memory = 20 * kMegabyte;
  Running server(options);
  std::atomic<int> answered = 0, refused = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 32; ++c)
    clients.emplace_back([&] {
      HttpClient client(server.port());
      client.send(HttpClient::post_request("/costly", std::string(kMegabyte, 'x')));
      const std::optional<HttpAnswer> answer = client.receive();
      if (answer && answer->status == 200) ++answered;
      if (answer && answer->status == 503) ++refused;
    });
  for (std::thread& client : clients) client.join();
  EXPECT_GT(answered, 0);
  EXPECT_EQ(answered + refused, 32);
  EXPECT_LE(server.memory().peak(), 20 * kMegabyte);
  server.stop();
  EXPECT_EQ(server.memory().held(), 64 * http::kConnectionBytes) << "what all connections have";
  options.memory = 1000;
  EXPECT_THROW(HttpServer{options}, Error) << "too little for anything";
}

}  // namespace
}  // namespace tetrad::testing
