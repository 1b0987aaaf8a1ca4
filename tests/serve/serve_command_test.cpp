// SPDX-License-Identifier: Apache-2.0
// `tetrad serve` over real sockets: what it answers, and that nothing a client does brings it down.

#include <gtest/gtest.h>

#include <csignal>

#include "serve/serve_program.h"

namespace tetrad::testing {
namespace {

TEST_F(ServeCommand, ScoresAreThoseOfTheScoreCommand) {
  write_file(shared_folder->file("ids.txt"),
             "108 105 110 101 32 49\n116 101 120\n7 200 0 255 9 9 9 9 9 9 9 9\n");
  for (const char* precision : {"trained", "f32"}) {
    const Outcome scored = run_tetrad({"score", run(), "--tokens", shared_folder->file("ids.txt"), "--json",
                                       "--precision", precision, "--backend", "cpu"});
    ASSERT_EQ(scored.exit_code, 0) << scored.err;
    const Json lines = Json::parse(scored.out)["lines"];
    Json prompts = Json::array();
    for (const Json& line : lines) prompts.push_back(line["tokens"]);
    const Server server({run(), "--precision", precision});
    const HttpAnswer answer = server.complete(Json{
        {"model", "tiny"},
        {"prompt", prompts},
        {"max_tokens", 1},
        {"logprobs", 1},
        {"echo", true},
        {"temperature", 0}}.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json choices = answer.json()["choices"];
    ASSERT_EQ(choices.size(), lines.size());
    // Read in one pass in f32, where sums of products may differ in their last bits.
    const double tolerance = std::string(precision) == "f32" ? 2e-5 : 0;
    for (std::size_t l = 0; l < lines.size(); ++l) {
      const Json& scores = choices[l]["logprobs"]["token_logprobs"];
      ASSERT_EQ(scores.size(), lines[l]["tokens"].size() + 1);
      EXPECT_TRUE(scores[0].is_null());
      for (std::size_t i = 1; i + 1 < scores.size(); ++i)
        EXPECT_NEAR(scores[i].get<double>(), lines[l]["logprobs"][i].get<double>(), tolerance);
    }
  }
}

TEST_F(ServeCommand, ContinuesAsTheGenerateCommandDoes) {
  const Server server({run()});
  for (const char* temperature : {"0", "0.9"}) {
    const Outcome generated =
        run_tetrad({"generate", run(), "--prompt", "line 4", "--tokens", "30", "--temperature", temperature,
                    "--seed", "11", "--json", "--backend", "cpu"});
    ASSERT_EQ(generated.exit_code, 0) << generated.err;
    const Json expected = Json::parse(generated.out);
    const HttpAnswer answer =
        server.complete(R"({"prompt": "line 4", "max_tokens": 30, "seed": 11, "temperature": )" +
                        std::string(temperature) + "}");
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["choices"][0]["text"], expected["text"]);
    EXPECT_TRUE(answer.json()["id"].get<std::string>().starts_with("cmpl-"));
    EXPECT_GT(answer.json()["created"].get<std::int64_t>(), 1'700'000'000);
  }
}

TEST_F(ServeCommand, TellsAboutModelAndTokenizer) {
  const Server server({run(), "--max-length", "99"});
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["id"], "tiny");
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["max_model_len"], 99);
  EXPECT_EQ(server.get("/v1/models/tiny").json(), server.get("/v1/models").json()["data"][0]);
  EXPECT_EQ(server.get("/v1/models/huge").status, 404);
  const Json info = server.get("/tokenizer_info?x=y").json();
  EXPECT_EQ(info["eos_token"], std::string(1, '\0'));
  EXPECT_TRUE(info["bos_token"].is_null());
  EXPECT_EQ(server.post("/tokenize", Json{{"prompt", info["eos_token"]}}.dump()).json()["tokens"], Json{0});
  EXPECT_EQ(server.post("/tokenize", R"({"prompt": "hé", "add_special_tokens": false})").json()["tokens"],
            (Json{'h', 0xC3, 0xA9}));
  EXPECT_EQ(server.post("/tokenize", R"({"prompt": ""})").json()["tokens"], Json::array());
  EXPECT_EQ(server.post("/detokenize", R"({"tokens": [104, 195, 169]})").json()["prompt"], "hé");
  EXPECT_EQ(server.post("/detokenize", R"({"tokens": []})").json()["prompt"], "");
  EXPECT_EQ(server.post("/detokenize", R"({"tokens": [256]})").status, 400);
  EXPECT_EQ(server.post("/tokenize", R"({"prompt": 5})").status, 400);
  EXPECT_EQ(server.post("/tokenize", R"({"prompt": "a", "add_special_tokens": 1})").status, 400);
  EXPECT_EQ(server.post("/tokenize", R"([])").status, 400);
}

TEST_F(ServeCommand, AnswersErrorsAndStaysUp) {
  const Server server({run(), "--max-body", "2000"});
  const std::vector<std::pair<std::string, int>> requests = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/3.0\r\n\r\n", 505},
      {"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
      {"DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
      {"GET /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
      {HttpClient::post_request("/v1/chat/completions", "{}"), 404},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 415},
      {"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + std::string(20000, 'x') + "\r\n\r\n", 431},
      {HttpClient::post_request("/v1/completions", std::string(2001, ' ')), 413},
      {HttpClient::post_request("/v1/completions", std::string(8'000'000, ' ')), 413},
      {HttpClient::post_request("/v1/completions", ""), 400},
      {HttpClient::post_request("/v1/completions", std::string(1000, '[')), 400},
      {HttpClient::post_request("/v1/completions", R"({"prompt": [256]})"), 400},
      {HttpClient::post_request("/v1/completions", R"({"prompt": ")" + std::string(65, 'a') + "\"}"), 400},
      {HttpClient::post_request("/v1/completions", R"({"prompt": [256], "stream": true})"), 400},
      {"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
      {HttpClient::post_request("/v1/completions", R"({"prompt": "a", "model": "x"})"), 404},
  };
  for (const auto& [bytes, status] : requests) {
    const HttpAnswer answer = server.ask(bytes);
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 80);
    EXPECT_NE(answer.error(), "") << answer.body;
    EXPECT_EQ(answer.json()["error"]["type"], status < 500 ? "invalid_request_error" : "server_error");
  }
  EXPECT_NE(
      server.ask("DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n").head.find("Allow: GET, HEAD\r\n"),
      std::string::npos);
  EXPECT_TRUE(server.is_well());
  EXPECT_EQ(server.complete(R"({"prompt": "a"})").status, 200);
  EXPECT_TRUE(server.logs("POST /v1/completions 200"));
  EXPECT_TRUE(server.logs("1 sequences, 1 + "));
}

TEST_F(ServeCommand, KeepsConnectionsOpen) {
  const Server server({run()});
  HttpClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/nowhere").status, 404) << "an error of the request, not of the connection";
  EXPECT_EQ(client.post("/tokenize", R"({"prompt": "a"})").json()["tokens"], Json{'a'});
  EXPECT_EQ(client
                .ask("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: Application/JSON; "
                     "charset=utf-8\r\n"
                     "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"prompt\": \"b\r\n2\r\n\"}\r\n0\r\n\r\n")
                .json()["tokens"],
            Json{'b'});
  // Two at once, answered in order.
  client.send(
      "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.receive()->status, 200);
  EXPECT_EQ(client.receive()->status, 404);
  const HttpAnswer last = client.ask("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_NE(last.head.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(client.is_closed_by_server());

  HttpClient patient(server.port());
  const std::string body = R"({"prompt": "a"})";
  patient.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: "
      "100-continue\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(patient.receive()->status, 100);
  EXPECT_EQ(patient.ask(body).status, 200);
}

TEST_F(ServeCommand, ParallelClientsGetWhatOneGets) {
  const Server server({run(), "--batch", "4"});
  const auto body = [](int i) {
    return Json{{"prompt", "line " + std::to_string(i % 5)},
                {"max_tokens", 5 + i % 3},
                {"seed", i},
                {"logprobs", 1},
                {"echo", i % 2 == 0}}
        .dump();
  };
  std::vector<Json> expected;
  for (int i = 0; i < 24; ++i) expected.push_back(server.complete(body(i)).json()["choices"]);
  std::vector<Json> results(24);
  std::vector<std::thread> clients;
  for (int c = 0; c < 8; ++c)
    clients.emplace_back([&, c] {
      HttpClient client(server.port());
      for (int i = c; i < 24; i += 8)
        results[static_cast<std::size_t>(i)] = client.post("/v1/completions", body(i)).json()["choices"];
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(results, expected);
}

/// The events of a stream, without "data: ".
std::vector<std::string> events_of(const std::string& body) {
  constexpr std::string_view kBegin = "data: ";
  std::vector<std::string> events;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    if (end == std::string::npos || body.substr(at, kBegin.size()) != kBegin)
      throw std::runtime_error("no event: " + body);
    events.push_back(body.substr(at + kBegin.size(), end - at - kBegin.size()));
    at = end + 2;
  }
  return events;
}

TEST_F(ServeCommand, StreamsWhatItWouldAnswer) {
  const Server server({run()});
  Json request = {{"prompt", {"line 4", "hä"}},
                  {"max_tokens", 40},
                  {"seed", 3},
                  {"n", 2},
                  {"logprobs", 1},
                  {"echo", true}};
  const Json whole = server.complete(request.dump()).json();
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  HttpClient client(server.port());
  const HttpAnswer answer = client.post("/v1/completions", request.dump());
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.head.find("Content-Type: text/event-stream; charset=utf-8\r\n"), std::string::npos);
  const std::vector<std::string> events = events_of(answer.body);
  ASSERT_GT(events.size(), 3U);
  EXPECT_EQ(events.back(), "[DONE]");
  const Json usage = Json::parse(events[events.size() - 2]);
  EXPECT_EQ(usage["usage"], whole["usage"]);
  EXPECT_EQ(usage["choices"], Json::array());
  std::vector<std::string> texts(4), reasons(4);
  std::vector<Json> logprobs(4, Json::array());
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    EXPECT_EQ(event["object"], "text_completion");
    EXPECT_EQ(event["id"], usage["id"]);
    const Json& choice = event["choices"][0];
    const std::size_t index = choice["index"];
    EXPECT_EQ(reasons.at(index), "") << "nothing comes after the end";
    texts[index] += choice["text"];
    if (!choice["finish_reason"].is_null()) reasons[index] = choice["finish_reason"];
    for (const Json& value : choice["logprobs"]["token_logprobs"]) logprobs[index].push_back(value);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& choice = whole["choices"][i];
    EXPECT_EQ(Json(texts[i]), choice["text"]);
    EXPECT_EQ(Json(reasons[i]), choice["finish_reason"]);
    EXPECT_EQ(logprobs[i], choice["logprobs"]["token_logprobs"]);
  }
  EXPECT_EQ(client.get("/health").status, 200) << "the connection stays";
}

TEST_F(ServeCommand, StreamsEndWithTheirClients) {
  const Server server({run(), "--max-length", "70000", "--batch", "1"});
  {
    HttpClient client(server.port());
    client.send(HttpClient::post_request("/v1/completions",
                                         R"({"prompt": "a", "max_tokens": 65000, "ignore_eos": true, "n": 4,
        "stream": true})"));
    while (client.received().find("data: ") == std::string::npos) ASSERT_TRUE(client.receive_some());
  }
  EXPECT_TRUE(server.logs("the client went away"));
  EXPECT_EQ(server.complete(R"({"prompt": "a", "max_tokens": 2})").status, 200);
}

TEST_F(ServeCommand, SoMuchIsUnderWayAndNoMore) {
  // A token takes a quarter of a kilobyte: there is room for four of these, and some small ones; and
  // they leave places for others.
  const Server server({run(), "--max-length", "70000", "--memory-budget", "230000000"});
  const std::string large =
      R"({"prompt": "a", "max_tokens": 65000, "ignore_eos": true, "n": 3, "stream": true})";
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 4; ++i) {
    HttpClient& client = *clients.emplace_back(std::make_unique<HttpClient>(server.port()));
    client.send(HttpClient::post_request("/v1/completions", large));
    while (client.received().find("data: ") == std::string::npos) ASSERT_TRUE(client.receive_some());
  }
  const HttpAnswer refused = server.complete(large);
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("Retry-After: 1\r\n"), std::string::npos);
  EXPECT_EQ(server.complete(R"({"prompt": "a", "max_tokens": 2})").status, 200) << "what is small still fits";
  EXPECT_EQ(
      server.complete(R"({"prompt": "a", "max_tokens": 65000, "ignore_eos": true, "n": 3, "logprobs": 5})")
          .status,
      413)
      << "what never fits does not wait";
  clients.clear();
  int status = 503;  // until the server has noticed
  while (status == 503) {
    HttpClient client(server.port());
    client.send(HttpClient::post_request("/v1/completions", large));
    while (client.received().find("\r\n") == std::string::npos) ASSERT_TRUE(client.receive_some());
    status = std::stoi(client.received().substr(9, 3));
  }
  EXPECT_EQ(status, 200);
}

TEST_F(ServeCommand, ClientsThatGoAwayAreForgotten) {
  const Server server({run(), "--max-length", "70000", "--batch", "1"});
  {
    HttpClient half(server.port());
    half.send("POST /tokenize HTTP/1.1\r\nContent-Le");
    HttpClient waiting(server.port());
    // It would take minutes, and nothing else could be computed meanwhile.
    waiting.send(HttpClient::post_request("/v1/completions",
                                          R"({"prompt": "a", "max_tokens": 65000, "ignore_eos": true, "n": 4,
        "temperature": 0})"));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(server.logs(" 499 "));
  EXPECT_EQ(server.complete(R"({"prompt": "a", "max_tokens": 2})").status, 200);
}

TEST_F(ServeCommand, SignalEndsItWhenRequestsAreAnswered) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Server server({run(), "--max-length", "100000"});
    HttpClient idle(server.port());
    EXPECT_EQ(idle.get("/health").status, 200);
    HttpClient client(server.port());
    client.send(HttpClient::post_request(
        "/v1/completions", R"({"prompt": "a", "max_tokens": 400, "temperature": 1, "seed": 1, "n": 4})"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server.program().send(signal);
    const std::optional<HttpAnswer> answer = client.receive();
    ASSERT_TRUE(answer) << "the request that was under way is answered";
    EXPECT_EQ(answer->status, 200);
    EXPECT_TRUE(idle.is_closed_by_server());
    EXPECT_EQ(server.program().wait().exit_code, 0);
    EXPECT_FALSE(HttpClient(server.port()).is_connected());
  }
}

TEST_F(ServeCommand, WorkThatTakesTooLongIsGivenUpAtTheEnd) {
  Server server({run(), "--max-length", "70000", "--grace", "0.2"});
  HttpClient client(server.port());
  client.send(HttpClient::post_request("/v1/completions",
                                       R"({"prompt": "a", "max_tokens": 65000, "ignore_eos": true, "n": 4,
      "temperature": 0})"));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.program().send(SIGTERM);
  const std::optional<HttpAnswer> answer = client.receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(server.program().wait().exit_code, 0);
}

TEST_F(ServeCommand, ExplainsItself) {
  const Outcome help = run_tetrad({"serve", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* word : {"Examples:", "--max-length", "127.0.0.1", "--port", "8000", "lm_eval"})
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
}

TEST_F(ServeCommand, RefusesToStartOnBadInput) {
  const Server server({run()});
  const auto refused = [](const Words& words, const std::string& text) {
    const Outcome outcome = run_tetrad(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE((outcome.out + outcome.err).find(text), std::string::npos) << outcome.err;
  };
  refused({"serve", run(), "--port", std::to_string(server.port())}, "choose another");
  refused({"serve", run(), "--host", "no such host"}, "in numbers");
  refused({"serve", run(), "--port", "0", "--batch", "4096", "--max-length", "16777216"}, "smaller --batch");
  refused({"serve", run(), "--port", "70000"}, "--port");
  refused({"serve", run(), "--batch", "0"}, "--batch");
  refused({"serve"}, "CHECKPOINT");
  EXPECT_EQ(run_tetrad({"serve", shared_folder->file("nowhere")}).exit_code,
            run_tetrad({"score", shared_folder->file("nowhere"), "--tokens", "-"}).exit_code);
}

}  // namespace
}  // namespace tetrad::testing
