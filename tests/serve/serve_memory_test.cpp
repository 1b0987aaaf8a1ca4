// SPDX-License-Identifier: Apache-2.0
// However many clients send however much: what the server counts and what it really has stay bounded.

#include "serve/serve_program.h"

namespace tetrad::testing {
namespace {

using ServeMemory = ServeCommand;

constexpr std::size_t kBudget = 300'000'000;
constexpr std::size_t kBody = 4'000'000;

struct Crowd {
  std::atomic<int> answered = 0;
  std::atomic<int> refused = 0;  //!< 503
  std::atomic<int> wrong = 0;    //!< 400, 404 or 413
};

/// 64 clients at once, each of which sends this.
void ask_all(const Server& server, const std::string& bytes, Crowd& crowd) {
  std::vector<std::thread> clients;
  for (int c = 0; c < 64; ++c)
    clients.emplace_back([&] {
      HttpClient client(server.port());
      client.send(bytes);
      const std::optional<HttpAnswer> answer = client.receive();
      const int status = answer ? answer->status : 0;
      ++(status == 200 ? crowd.answered : status == 503 ? crowd.refused : crowd.wrong);
    });
  for (std::thread& client : clients) client.join();
}

TEST_F(ServeMemory, IsBoundedOnEveryRoute) {
  Server server({run(), "--memory-budget", std::to_string(kBudget), "--connections", "80"});
  const std::size_t before = server.program().peak_memory();
  std::string ids = "1";
  while (ids.size() < kBody - 100) ids += ",1";
  std::string objects = "{}";
  while (objects.size() < kBody - 100) objects += ",{}";
  const std::string text(kBody - 100, 'a');
  const std::string members = [] {
    std::string result = "\"a\":0";
    for (int i = 0; result.size() < kBody - 100; ++i) result += ",\"" + std::to_string(i) + "\":0";
    return result;
  }();
  Crowd tokenized, detokenized, completed, nested, named;
  ask_all(server, HttpClient::post_request("/tokenize", R"({"prompt": ")" + text + "\"}"), tokenized);
  EXPECT_GT(tokenized.answered, 0);
  EXPECT_EQ(tokenized.wrong, 0);
  ask_all(server, HttpClient::post_request("/detokenize", R"({"tokens": [)" + ids + "]}"), detokenized);
  ask_all(server, HttpClient::post_request("/v1/completions", R"({"prompt": [)" + ids + "]}"), completed);
  ask_all(server, HttpClient::post_request("/tokenize", R"({"prompt": [)" + objects + "]}"), nested);
  ask_all(server, HttpClient::post_request("/v1/completions", "{" + members + "}"), named);
  for (const Crowd* crowd : {&detokenized, &completed, &nested, &named}) {
    EXPECT_GT(crowd->wrong, 0) << "refused as too many values, where there was memory to look";
    EXPECT_EQ(crowd->wrong + crowd->refused, 64);
  }
  EXPECT_LE(server.figure("tetrad_serve_memory_peak_bytes"), static_cast<double>(kBudget));
  EXPECT_LT(server.program().peak_memory(), before + kBudget) << "before: " << before;
  EXPECT_TRUE(server.is_well());
  EXPECT_TRUE(server.figure_falls("tetrad_serve_memory_held_bytes", 3e6)) << "all of it was given back";
}

TEST_F(ServeMemory, SlowClientsGiveItBack) {
  Server server({run(), "--memory-budget", std::to_string(kBudget), "--timeout", "0.3", "--send-timeout",
                 "0.3", "--idle-timeout", "0.3"});
  HttpClient sender(server.port());
  sender.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n{");
  EXPECT_EQ(sender.receive()->status, 408);
  HttpClient reader(server.port(), 4096);  // takes nothing of an answer of many MB
  reader.send(
      HttpClient::post_request("/tokenize", R"({"prompt": ")" + std::string(kBody - 100, 'a') + "\"}"));
  EXPECT_TRUE(server.logs("POST /tokenize 200"));
  HttpClient idle(server.port());
  EXPECT_TRUE(idle.is_closed_by_server());
  EXPECT_TRUE(server.figure_falls("tetrad_serve_memory_held_bytes", 3e6));
}

}  // namespace
}  // namespace tetrad::testing
