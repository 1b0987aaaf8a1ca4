// SPDX-License-Identifier: Apache-2.0
// Requests and responses of /v1/completions, without a server.

#include "tetrad/serve/completions.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "serve/small_model.h"
#include "tetrad/eval/score.h"
#include "tetrad/serve/api_error.h"
#include "tetrad/serve/completion_stream.h"
#include "tetrad/tokenizer/bpe_trainer.h"

namespace tetrad::testing::completions_test {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

const ByteTokenizer byte_tokenizer;

CompletionContext context(const Tokenizer* tokenizer = &byte_tokenizer) {
  CompletionContext result;
  result.model = "small";
  result.vocab = 256;
  result.max_length = 100;
  result.max_sequences = 10;
  result.max_tokens = 300;
  result.tokenizer = tokenizer;
  const auto end = tokenizer != nullptr ? tokenizer->end_of_document() : std::nullopt;
  if (end) result.ends = {*end};
  return result;
}

CompletionRequest parse(const std::string& body) { return parse_completion_request(body, context(), 77); }

void expect_refused(const std::string& body, const std::string& parameter, int status = 400,
                    const Tokenizer* tokenizer = &byte_tokenizer) {
  try {
    parse_completion_request(body, context(tokenizer), 77);
    ADD_FAILURE() << "not refused: " << body;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), status) << body;
    EXPECT_EQ(error.parameter(), parameter) << body << "\n" << error.what();
  }
}

TEST(CompletionRequest, HasTheDefaultsOfOpenAi) {
  const CompletionRequest request = parse(R"({"prompt": "hi"})");
  EXPECT_EQ(request.prompts, std::vector<Ids>({{'h', 'i'}}));
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.seed, 77U);
  EXPECT_EQ(request.logprobs, std::nullopt);
  EXPECT_FALSE(request.echo);
  EXPECT_TRUE(request.stop.empty());
}

TEST(CompletionRequest, ReadsEveryMember) {
  const CompletionRequest request = parse(R"({"model": "small", "prompt": "a", "max_tokens": 3, "n": 2,
      "best_of": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": -1, "logprobs": 5, "echo": true,
      "stop": ["x", "\u0000"], "stream": false, "suffix": null, "presence_penalty": 0, "frequency_penalty": 0.0,
      "logit_bias": {}, "user": "me", "return_token_ids": true, "ignore_eos": true})");
  EXPECT_EQ(request.max_tokens, 3);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.seed, UINT64_MAX);
  EXPECT_EQ(request.logprobs, 5);
  EXPECT_TRUE(request.echo && request.return_token_ids && request.ignore_eos);
  EXPECT_EQ(request.stop, std::vector<std::string>({"x", std::string(1, '\0')}));
}

TEST(CompletionRequest, TakesPromptsInAllForms) {
  EXPECT_EQ(parse(R"({"prompt": ["ab", "c"]})").prompts, std::vector<Ids>({{'a', 'b'}, {'c'}}));
  EXPECT_EQ(parse(R"({"prompt": [1, 255]})").prompts, std::vector<Ids>({{1, 255}}));
  EXPECT_EQ(parse(R"({"prompt": [[1], [2, 3]]})").prompts, std::vector<Ids>({{1}, {2, 3}}));
  EXPECT_EQ(parse(R"({"prompt": ""})").prompts, std::vector<Ids>({{0}})) << "a document begins";
}

TEST(CompletionRequest, RefusesWhatItCannotDo) {
  expect_refused("", "");
  expect_refused("{", "");
  expect_refused("[1]", "");
  expect_refused("\xFF", "");
  expect_refused(R"({"prompt": "a", "prompt": "b"})", "");
  expect_refused("{}", "prompt");
  for (const char* prompt : {"null", "7", "true", "{}", "[]", "[[]]", "[[1], []]", "[null]", "[1, \"a\"]",
                             "[\"a\", 1]", "[\"a\", [1]]", "[[1], \"a\"]", "[1.5]", "[-1]", "[256]",
                             "[18446744073709551616]", "[1e400]", "[[[1]]]", "[[1, true]]"})
    expect_refused(std::string(R"({"prompt": )") + prompt + "}",
                   std::string(prompt) == "[1e400]" ? "" : "prompt");
  const auto with = [](const std::string& member) { return R"({"prompt": "a", )" + member + "}"; };
  for (const auto& [member, parameter] : std::vector<std::pair<std::string, std::string>>{
           {R"("max_tokens": -1)", "max_tokens"},
           {R"("max_tokens": 101)", "max_tokens"},
           {R"("max_tokens": 100)", "prompt"},
           {R"("max_tokens": 1.5)", "max_tokens"},
           {R"("max_tokens": "1")", "max_tokens"},
           {R"("n": 0)", "n"},
           {R"("n": 11)", "n"},
           {R"("n": 129)", "n"},
           {R"("n": 4, "max_tokens": 75)", "prompt"},
           {R"("best_of": 2)", "best_of"},
           {R"("temperature": -0.1)", "temperature"},
           {R"("temperature": "hot")", "temperature"},
           {R"("top_p": 1.1)", "top_p"},
           {R"("top_k": -2)", "top_k"},
           {R"("seed": 1.5)", "seed"},
           {R"("logprobs": 6)", "logprobs"},
           {R"("logprobs": true)", "logprobs"},
           {R"("echo": 1)", "echo"},
           {R"("stop": 1)", "stop"},
           {R"("stop": "")", "stop"},
           {R"("stop": ["a", null])", "stop"},
           {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
            "stop"},
           {R"("stream": 1)", "stream"},
           {R"("stream_options": {})", "stream_options"},
           {R"("stream": true, "stream_options": true)", "stream_options"},
           {R"("stream": true, "stream_options": {"include_usage": 1})", "include_usage"},
           {R"("suffix": "b")", "suffix"},
           {R"("presence_penalty": 0.5)", "presence_penalty"},
           {R"("frequency_penalty": -0.5)", "frequency_penalty"},
           {R"("logit_bias": {"1": 2})", "logit_bias"},
           {R"("repetition_penalty": 1.1)", "repetition_penalty"},
           {R"("min_p": 0.1)", "min_p"},
           {R"("use_beam_search": true)", "use_beam_search"},
           {R"("stop_token_ids": [1])", "stop_token_ids"},
           {R"("tools": [{}])", "tools"},
           {R"("response_format": {"type": "json_object"})", "response_format"},
           {R"("guided_regex": "a*")", "guided_regex"}})
    expect_refused(with(member), parameter);
  expect_refused(with(R"("model": "large")"), "model", 404);
  expect_refused(R"({"prompt": "a"})", "prompt", 400, nullptr);
  expect_refused(R"({"prompt": [1], "stop": "a"})", "stop", 400, nullptr);
  expect_refused(R"({"prompt": [)" +
                     [] {
                       std::string ids = "1";
                       for (int i = 0; i < 100; ++i) ids += ",1";
                       return ids;
                     }() +
                     "]}",
                 "prompt");
  expect_refused(R"({"prompt": ["a","a","a","a","a","a","a","a","a","a","a"]})", "prompt");
}

TEST(CompletionRequest, IgnoresWhatDoesNoHarm) {
  const CompletionRequest request =
      parse(R"({"prompt": "a", "max_token": 3, "metadata": {"x": [1]}, "min_p": 0,
      "response_format": {"type": "text"}, "stream": true, "stream_options": {"include_use": true}})");
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.warnings, std::vector<std::string>({"\"include_use\" is not known here and was ignored",
                                                        "\"max_token\" is not known here and was ignored",
                                                        "\"metadata\" is not known here and was ignored"}));
  EXPECT_TRUE(parse(R"({"prompt": "a", "user": "me", "suffix": null})").warnings.empty());
  std::string many = R"({"prompt": "a")";
  for (int i = 0; i < 50; ++i) many += ", \"m" + std::to_string(i) + "\": 1";
  EXPECT_EQ(parse(many + "}").warnings.size(), 17U) << "not a line for each of any number";
}

TEST(CompletionRequest, KnowsItsMemory) {
  const auto bytes = [](const std::string& members) {
    return parse(R"({"prompt": "abcd")" + members + "}").bytes();
  };
  const std::size_t plain = bytes("");
  EXPECT_GE(plain, 16U * 256);
  EXPECT_GT(bytes(R"(, "max_tokens": 32)"), plain);
  EXPECT_GT(bytes(R"(, "n": 2)"), 2 * plain - 100);
  EXPECT_GT(bytes(R"(, "logprobs": 0)"), plain + 16 * 500);
  EXPECT_GT(bytes(R"(, "logprobs": 5)"), bytes(R"(, "logprobs": 0)") + 16 * 5 * 200);
  EXPECT_GT(bytes(R"(, "logprobs": 0, "echo": true)"), bytes(R"(, "logprobs": 0)") + 4 * 500);
}

TEST(CompletionRequest, MayHaveSoManyTokensInAll) {
  EXPECT_EQ(parse(R"({"prompt": "a", "n": 4, "max_tokens": 74})").n, 4);
}

TEST(CompletionRequest, ContinuationsHaveSeedsOfTheirOwn) {
  const std::vector<GenerationTask> tasks =
      tasks_of(parse(R"({"prompt": ["a", "b"], "n": 2, "seed": 5})"), context());
  ASSERT_EQ(tasks.size(), 4U);
  EXPECT_EQ(tasks[0].sampling.seed, 5U);
  EXPECT_NE(tasks[1].sampling.seed, 5U);
  EXPECT_EQ(tasks[2].sampling.seed, 5U) << "a prompt's text does not depend on the prompts beside it";
  EXPECT_EQ(tasks[2].prompt, Ids{'b'});
}

TEST(Completions, StopStringsAreFoundAcrossTokens) {
  std::vector<GenerationTask> tasks = tasks_of(parse(R"({"prompt": "a", "stop": ["xyz", "q"]})"), context());
  const std::string text = "aaxyxyz";
  Ids generated;
  for (const char c : text) {
    generated.push_back(c);
    EXPECT_EQ(tasks[0].is_enough(generated), generated.size() == text.size()) << generated.size();
  }
  EXPECT_EQ(find_stop("abcabc", {"c", "b"}), 1U);
  EXPECT_EQ(find_stop("abc", {"d"}), std::nullopt);
}

TEST(Completions, TokensHaveNames) {
  EXPECT_EQ(token_name(&byte_tokenizer, 'a'), "a");
  EXPECT_EQ(token_name(&byte_tokenizer, 0xC3), "bytes:\\xc3");
  EXPECT_EQ(token_name(&byte_tokenizer, 256), "token_id:256");
  EXPECT_EQ(token_name(nullptr, 5), "token_id:5");
  EXPECT_EQ(token_name(&byte_tokenizer, 0), std::string(1, '\0'));
}

/// The response to a request, computed by an engine.
Json respond(Engine& engine, const std::string& body, const Tokenizer* tokenizer = &byte_tokenizer) {
  const CompletionRequest request = parse_completion_request(body, context(tokenizer), 1);
  const std::vector<Generation> results =
      engine.run(tasks_of(request, context(tokenizer)), [] { return false; });
  // As it is sent.
  return Json::parse(completion_response(request, context(tokenizer), results)
                         .dump(-1, ' ', false, Json::error_handler_t::replace));
}

TEST(Completions, AnswersAsTheHarnessNeedsIt) {
  SmallModel model("nvfp4");
  const Ids first = {'h', 0xC3, 0xA4, '!'};
  const Ids second = {'x'};
  const Score expected = score(model.decoder, model.pass(), first, KeepLogits::yes);
  Engine engine(model.decoder, model.pass(), {});
  const Json response =
      respond(engine, R"({"model": "small", "prompt": [[104, 195, 164, 33], [120]], "temperature": 0,
      "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true})");
  EXPECT_EQ(response["object"], "text_completion");
  EXPECT_EQ(response["model"], "small");
  EXPECT_EQ(response["usage"], (Json{{"prompt_tokens", 5}, {"completion_tokens", 2}, {"total_tokens", 7}}));
  ASSERT_EQ(response["choices"].size(), 2U);
  const Json& choice = response["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_TRUE(choice["text"].get<std::string>().starts_with("hä!"));
  const Json& logprobs = choice["logprobs"];
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    ASSERT_EQ(logprobs[list].size(), 5U) << list;
  EXPECT_EQ(logprobs["tokens"][0], "h");
  EXPECT_EQ(logprobs["tokens"][1], "bytes:\\xc3");
  EXPECT_EQ(logprobs["text_offset"], (Json{0, 1, 2, 2, 3})) << "in characters";
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  for (std::size_t i = 1; i < 4; ++i) {
    // To the bit, also after it was written and read.
    EXPECT_EQ(logprobs["token_logprobs"][i].get<double>(), expected.log_probabilities[i - 1]);
    const std::span<const float> logits = std::span(expected.logits).subspan((i - 1) * 256, 256);
    const auto best = static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
    double maximum = -std::numeric_limits<double>::infinity();  // as the harness finds out whether the token
                                                                // was the likeliest
    for (const Json& value : logprobs["top_logprobs"][i]) maximum = std::max(maximum, value.get<double>());
    EXPECT_EQ(maximum, NextTokenLogProbabilities(logits)[best]);
  }
  EXPECT_EQ(response["choices"][1]["logprobs"]["tokens"].size(), 2U);
}

TEST(Completions, EndTokenHasAScoreButNoText) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  const CompletionRequest request =
      parse(R"({"prompt": [1, 2], "logprobs": 0, "echo": true, "max_tokens": 1})");
  Generation ended;
  ended.prompt_scores = {{2, -1.0, {}}};
  ended.tokens = {0};
  ended.scores = {{0, -2.0, {}}};
  ended.finish = Finish::stop;
  const Json choice = completion_response(request, context(), {ended})["choices"][0];
  EXPECT_EQ(choice["text"], "\x01\x02");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], (Json{nullptr, -1.0, -2.0}))
      << "prompt + 1 long, as promised";
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1], (Json{{"\x02", -1.0}}));
}

TEST(Completions, ATextMayHaveSeveralEnds) {
  CompletionContext several = context();
  several.ends = {0, 7};
  const CompletionRequest request = parse(R"({"prompt": "a"})");
  EXPECT_EQ(tasks_of(request, several)[0].ends, (Ids{0, 7}));
  for (const std::int32_t end : {0, 7, 8}) {
    Generation ended;
    ended.tokens = {'b', end};
    const Json choice = completion_response(request, several, {ended})["choices"][0];
    EXPECT_EQ(choice["text"], end == 8 ? "b\b" : "b") << end;
  }
}

TEST(Completions, EchoWithoutNewTokens) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  const Json choice =
      respond(engine, R"({"prompt": "abc", "max_tokens": 0, "logprobs": 2, "echo": true})")["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"].size(), 3U);
  EXPECT_EQ(choice["finish_reason"], "length");
  const Json plain = respond(engine, R"({"prompt": "abc", "max_tokens": 0, "echo": true})")["choices"][0];
  EXPECT_EQ(plain["text"], "abc");
  EXPECT_TRUE(plain["logprobs"].is_null());
}

TEST(Completions, SeedsRepeatAndContinuationsDiffer) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  const std::string body =
      R"({"prompt": [7], "n": 3, "seed": 4, "max_tokens": 20, "return_token_ids": true})";
  const Json once = respond(engine, body)["choices"];
  EXPECT_EQ(once, respond(engine, body)["choices"]);
  EXPECT_NE(once[0]["token_ids"], once[1]["token_ids"]);
  EXPECT_NE(once[1]["token_ids"], once[2]["token_ids"]);
  EXPECT_EQ(once[2]["index"], 2);
}

TEST(Completions, TextStopsBeforeTheStopString) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  const std::string start = R"({"prompt": [7], "seed": 4, "max_tokens": 20, "return_token_ids": true)";
  const Json all = respond(engine, start + "}")["choices"][0];
  const Ids ids = all["token_ids"];
  std::size_t at = 0;  // position of a token that is one character and has not occurred before
  for (std::size_t i = 3; i < ids.size() && at == 0; ++i)
    if (ids[i] >= 'a' && ids[i] <= 'z' &&
        std::ranges::count(ids.begin(), ids.begin() + static_cast<int>(i), ids[i]) == 0)
      at = i;
  ASSERT_GT(at, 0U) << "another seed is needed";
  const std::string stop(1, static_cast<char>(ids[at]));
  const Json stopped = respond(engine, start + R"(, "stop": ")" + stop + "\"}")["choices"][0];
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["token_ids"].size(), at + 1);
  EXPECT_EQ(stopped["text"].get<std::string>().find(stop), std::string::npos);
  EXPECT_TRUE(all["text"].get<std::string>().starts_with(stopped["text"].get<std::string>()));
}

/// The events of a request whose results come in these pieces, without "data: ".
std::vector<std::string> events_of(const std::string& body, const std::vector<Generation>& pieces,
                                   const Tokenizer* tokenizer = &byte_tokenizer) {
  const CompletionRequest request = parse_completion_request(body, context(tokenizer), 1);
  const CompletionContext asked = context(tokenizer);
  const Json frame = {{"id", "x"}};
  std::vector<std::string> events;
  const CompletionStream::Write write = [&](std::string_view event) {
    EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n"));
    events.emplace_back(event.substr(6, event.size() - 8));
  };
  CompletionStream stream(request, asked, frame, write);
  for (std::size_t i = 0; i < pieces.size(); ++i) stream.add(0, pieces[i], i + 1 == pieces.size());
  stream.finish();
  return events;
}

std::vector<Generation> piece_by_piece(const std::string& text, Finish finish) {
  std::vector<Generation> pieces;
  for (const char c : text) pieces.push_back({{}, {static_cast<unsigned char>(c)}, {}, finish});
  return pieces;
}

std::vector<std::string> texts_of(const std::vector<std::string>& events) {
  std::vector<std::string> texts;
  for (const std::string& event : events)
    if (event != "[DONE]") texts.push_back(Json::parse(event)["choices"][0]["text"]);
  return texts;
}

using Texts = std::vector<std::string>;

TEST(CompletionStream, EventsHaveWholeCharacters) {
  const auto events =
      events_of(R"({"prompt": "a", "stream": true})", piece_by_piece("hä€😀!", Finish::length));
  EXPECT_EQ(texts_of(events), (Texts{"h", "ä", "€", "😀", "!"}));
  EXPECT_EQ(events.back(), "[DONE]");
  const Json first = Json::parse(events[0]);
  EXPECT_EQ(first,
            (Json{{"id", "x"},
                  {"choices",
                   {{{"index", 0}, {"text", "h"}, {"logprobs", nullptr}, {"finish_reason", nullptr}}}}}));
  EXPECT_EQ(Json::parse(events[4])["choices"][0]["finish_reason"], "length");
}

TEST(CompletionStream, WhatIsNoTextIsReplacedAsInTheWhole) {
  for (const std::string text :
       {"\xE2\x82", "\xE2\x82!", "\xC3\xC3\xA4", "\x80\x80\x80\x80\x80", "\xF0\x9F\x98", "a\xFF\xFE!",
        "\xE0\x80\x80\xF8\x88\x80\x80\x80", "\xED\xA0\x80"}) {
    const CompletionRequest request = parse(R"({"prompt": "a"})");
    Generation whole;
    for (const char c : text) whole.tokens.push_back(static_cast<unsigned char>(c));
    const std::string expected =
        Json::parse(completion_response(request, context(), {whole})
                        .dump(-1, ' ', false, Json::error_handler_t::replace))["choices"][0]["text"];
    std::string joined;
    for (const std::string& part :
         texts_of(events_of(R"({"prompt": "a", "stream": true})", piece_by_piece(text, Finish::length))))
      joined += part;
    EXPECT_EQ(joined, expected) << ::testing::PrintToString(text);
  }
}

TEST(CompletionStream, WaitsWhereAStopStringMayBegin) {
  const std::string body = R"({"prompt": "a", "stream": true, "stop": ["xyz", "yq"]})";
  EXPECT_EQ(texts_of(events_of(body, piece_by_piece("axxyxyz", Finish::stop))), (Texts{"a", "x", "xy", ""}));
  EXPECT_EQ(texts_of(events_of(body, piece_by_piece("xyq", Finish::stop))), (Texts{"x"}));
  EXPECT_EQ(texts_of(events_of(body, piece_by_piece("axy", Finish::length))), (Texts{"a", "xy"}));
  EXPECT_EQ(sendable("xy", 1, {"xyz"}), 2U) << "the prompt begins no stop string";
  EXPECT_EQ(sendable("xy", 0, {"xyz"}), 0U);
}

TEST(CompletionStream, EchoScoresAndUsage) {
  std::vector<Generation> pieces(2);
  pieces[0] = {{{'c', -0.5, {}}}, {'d'}, {{'d', -1.5, {}}}, Finish::length};
  pieces[1] = {{}, {'e', 0}, {{'e', -2.5, {}}, {0, -3.5, {}}}, Finish::stop};
  const auto events = events_of(R"({"prompt": "bc", "stream": true, "echo": true, "logprobs": 0,
      "return_token_ids": true, "stream_options": {"include_usage": true}})",
                                pieces);
  ASSERT_EQ(events.size(), 4U);
  const Json first = Json::parse(events[0]), second = Json::parse(events[1]), usage = Json::parse(events[2]);
  EXPECT_EQ(first["choices"][0]["text"], "bcd");
  EXPECT_EQ(first["choices"][0]["logprobs"]["token_logprobs"], (Json{nullptr, -0.5, -1.5}));
  EXPECT_TRUE(first["usage"].is_null() && first.contains("usage"));
  EXPECT_EQ(second["choices"][0]["text"], "e") << "the end has no text";
  EXPECT_EQ(second["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(second["choices"][0]["token_ids"], (Json{'e', 0}));
  EXPECT_EQ(second["choices"][0]["logprobs"]["token_logprobs"], (Json{-2.5, -3.5}));
  EXPECT_EQ(second["choices"][0]["logprobs"]["text_offset"], (Json{3, 4}));
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"], (Json{{"prompt_tokens", 2}, {"completion_tokens", 3}, {"total_tokens", 5}}));
}

TEST(CompletionStream, NamesTokensWhereThereIsNoText) {
  const auto events = events_of(R"({"prompt": [1], "stream": true, "return_token_ids": true})",
                                piece_by_piece("ab", Finish::length), nullptr);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(Json::parse(events[0])["choices"][0]["token_ids"], Json{'a'});
}

TEST(Completions, ServesModelsWithoutTokenizer) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  const Json choice = respond(engine, R"({"prompt": [1, 2], "max_tokens": 2, "logprobs": 1, "echo": true,
      "return_token_ids": true})",
                              nullptr)["choices"][0];
  EXPECT_EQ(choice["text"], "");
  EXPECT_EQ(choice["logprobs"]["tokens"][1], "token_id:2");
  EXPECT_EQ(choice["token_ids"].size(), 2U);
}

}  // namespace
}  // namespace tetrad::testing::completions_test
