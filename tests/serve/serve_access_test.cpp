// SPDX-License-Identifier: Apache-2.0
// Who may ask `tetrad serve`, what it tells about itself, and its log.

#include <csignal>

#include "serve/serve_program.h"

namespace tetrad::testing {
namespace {

using ServeAccess = ServeCommand;

std::string get_with(const std::string& path, const std::string& headers) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}

TEST_F(ServeAccess, NeedsTheKey) {
  const std::string key = "a-key-of-some-length";
  write_file(shared_folder->file("key.txt"), key + "\n");
  const Server from_file({run(), "--api-key-file", shared_folder->file("key.txt")});
  const Server from_variable({run()}, {"TETRAD_API_KEY=" + key});
  for (const Server* server : {&from_file, &from_variable}) {
    for (const char* path : {"/v1/models", "/metrics", "/version", "/nowhere", "/tokenizer_info"}) {
      const HttpAnswer refused = server->get(path);
      EXPECT_EQ(refused.status, 401) << path;
      EXPECT_NE(refused.head.find("WWW-Authenticate: Bearer\r\n"), std::string::npos);
      EXPECT_NE(refused.error(), "");
    }
    EXPECT_EQ(server->ask(get_with("/v1/models", "Authorization: Bearer " + key + "\r\n")).status, 200);
    EXPECT_EQ(server->ask(get_with("/v1/models", "Authorization: Bearer " + key + "x\r\n")).status, 401);
    EXPECT_EQ(server->get("/health").status, 200) << "who watches needs none";
    EXPECT_EQ(server->get("/ready").status, 200);
    EXPECT_EQ(
        server->ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
            .status,
        401)
        << "the body is not waited for";
  }
  write_file(shared_folder->file("short.txt"), "secret\n");
  const Outcome outcome = run_tetrad({"serve", run(), "--api-key-file", shared_folder->file("short.txt")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("short.txt"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("secret"), std::string::npos) << "a key is not shown";
}

TEST_F(ServeAccess, AnswersToItsNamesOnly) {
  const Server server({"--allowed-host", "other.example", "--allowed-host", "gpu.example", run()});
  const auto status_for = [&](const std::string& host) {
    return server.ask("GET /health HTTP/1.1\r\nHost: " + host + "\r\n\r\n").status;
  };
  for (const char* host : {"localhost", "127.0.0.1:8000", "gpu.example", "GPU.example:443", "other.example"})
    EXPECT_EQ(status_for(host), 200) << host;
  for (const char* host : {"evil.example", "x.gpu.example", "10.0.0.1"})
    EXPECT_EQ(status_for(host), 403) << host;
  const Server open({run(), "--host", "0.0.0.0"});
  EXPECT_EQ(open.ask("GET /health HTTP/1.1\r\nHost: 10.0.0.1:8000\r\n\r\n").status, 200);
  EXPECT_EQ(open.ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
  EXPECT_TRUE(open.logs("give an API key"));
}

TEST_F(ServeAccess, TellsAboutItself) {
  Server server({run(), "--grace", "20", "--max-length", "70000"});
  EXPECT_EQ(server.get("/ready").json()["status"], "ready");
  const Json version = server.get("/version").json();
  EXPECT_NE(run_tetrad({"--version"}).out.find(version["version"].get<std::string>()), std::string::npos);
  const Json usage = server.complete(R"({"prompt": "abc", "max_tokens": 5, "n": 2})").json()["usage"];
  EXPECT_EQ(server.get("/nowhere").status, 404);
  EXPECT_TRUE(server.logs("POST /v1/completions 200") && server.logs("GET /nowhere 404")) << "counted by now";
  const HttpAnswer page = server.get("/metrics");
  EXPECT_NE(page.head.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), std::string::npos);
  for (const char* line : {"tetrad_serve_requests_total{route=\"/v1/completions\",status=\"200\"} 1\n",
                           "tetrad_serve_requests_total{route=\"other\",status=\"404\"} 1\n",
                           "tetrad_serve_info{model=\"tiny\"", "tetrad_serve_request_seconds_bucket{"})
    EXPECT_NE(page.body.find(line), std::string::npos) << line << page.body;
  EXPECT_EQ(server.figure("tetrad_serve_ready"), 1);
  EXPECT_EQ(server.figure("tetrad_serve_prompt_tokens_total"), 6);
  EXPECT_EQ(server.figure("tetrad_serve_generated_tokens_total"), usage["completion_tokens"]);
  EXPECT_EQ(server.figure("tetrad_serve_waiting_sequences"), 0);
  EXPECT_EQ(server.figure("tetrad_serve_memory_budget_bytes"), 1 << 30);
  EXPECT_GT(server.figure("tetrad_serve_memory_peak_bytes"), server.figure("tetrad_serve_memory_held_bytes"));

  // A connection that had begun to ask when the signal came gets an answer: that it is over.
  HttpClient half(server.port());
  half.send("GET /ready HTTP/1.1\r\nHost: loc");
  HttpClient busy(server.port());
  busy.send(
      HttpClient::post_request("/v1/completions", R"({"prompt": "a", "max_tokens": 60000, "stream": true})"));
  while (busy.received().find("data: ") == std::string::npos) ASSERT_TRUE(busy.receive_some());
  server.program().send(SIGTERM);
  while (HttpClient(server.port()).is_connected()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  half.send("alhost\r\n\r\n");
  EXPECT_EQ(half.receive()->status, 503);
}

TEST_F(ServeAccess, LogsObjects) {
  Server server({run(), "--log", "json"});
  const Json usage = server.complete(R"({"prompt": "abc", "max_tokens": 5})").json()["usage"];
  EXPECT_TRUE(server.logs("\"status\":200"));
  EXPECT_EQ(server.ask("nonsense\r\n\r\n").status, 400);
  EXPECT_TRUE(server.logs("\"status\":400"));
  server.program().send(SIGTERM);
  const std::string log = server.program().wait().err;
  std::vector<Json> requests;
  for (std::size_t at = 0; at < log.size(); at = log.find('\n', at) + 1) {
    const Json line = Json::parse(log.substr(at, log.find('\n', at) - at));
    EXPECT_TRUE(line.contains("time")) << line;
    if (line.contains("status")) requests.push_back(line);
  }
  ASSERT_EQ(requests.size(), 2U) << log;
  EXPECT_EQ(requests[0]["method"], "POST");
  EXPECT_EQ(requests[0]["route"], "/v1/completions");
  EXPECT_EQ(requests[0]["status"], 200);
  EXPECT_EQ(requests[0]["prompt_tokens"], 3);
  EXPECT_EQ(requests[0]["completion_tokens"], usage["completion_tokens"]);
  EXPECT_GT(requests[0]["bytes"], 50);
  EXPECT_GE(requests[0]["seconds"], 0);
  EXPECT_EQ(requests[1]["route"], "other");
}

TEST_F(ServeAccess, IgnoresWhatDoesNoHarmAndSaysSo) {
  const Server server({run()});
  const std::string body = R"({"prompt": "a", "max_tokens": 2, "metadata": {"a": {"b": 1}}, "store": true)";
  const Json answer = server.complete(body + "}").json();
  EXPECT_EQ(answer["warnings"].size(), 2U) << answer;
  EXPECT_TRUE(server.logs("\"metadata\" is not known here and was ignored"));
  EXPECT_FALSE(server.complete(R"({"prompt": "a", "max_tokens": 2})").json().contains("warnings"));
  const std::string events = server.complete(body + R"(, "stream": true})").body;
  EXPECT_NE(events.find("warnings"), std::string::npos);
  EXPECT_EQ(events.find("warnings"), events.rfind("warnings")) << "said once";
  EXPECT_EQ(server.complete(body + R"(, "tools": [{"type": "function"}]})").status, 400);
}

TEST_F(ServeAccess, Chats) {
  const Server server({run(), "--chat-template", "chatml", "--max-length", "500"});
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 12}, {"seed", 4}};
  const Json answer = server.post("/v1/chat/completions", chat.dump()).json();
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  const Json same = server
                        .complete(R"({"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
      "max_tokens": 12, "seed": 4})")
                        .json();
  EXPECT_EQ(choice["message"]["content"], same["choices"][0]["text"]);
  EXPECT_EQ(answer["usage"], same["usage"]);
  Json streamed = chat;
  streamed["stream"] = true;
  const std::string events = server.post("/v1/chat/completions", streamed.dump()).body;
  EXPECT_NE(events.find("\"object\":\"chat.completion.chunk\""), std::string::npos) << events;
  std::string text;
  for (std::size_t at = events.find("data: {"); at != std::string::npos; at = events.find("data: {", at + 1))
    text += Json::parse(
        events.substr(at + 6, events.find("\n\n", at) - at - 6))["choices"][0]["delta"]["content"];
  EXPECT_EQ(Json(text), choice["message"]["content"]);
  const Server without({run()});
  EXPECT_EQ(without.post("/v1/chat/completions", chat.dump()).status, 404);
  for (const char* name : {"jinja", "auto"})  // its tokenizer has no special tokens
    EXPECT_EQ(run_tetrad({"serve", run(), "--chat-template", name, "--port", "0"}).exit_code, 2) << name;
}

}  // namespace
}  // namespace tetrad::testing
