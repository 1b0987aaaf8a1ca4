// SPDX-License-Identifier: Apache-2.0
// What the engine computes for many at once against what the decoder computes for each alone.

#include "tetrad/serve/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "serve/engine_clients.h"
#include "serve/small_model.h"
#include "tetrad/eval/score.h"

namespace tetrad::testing::engine_test {
namespace {

struct Case {
  std::string recipe;
  bool hybrid;
  DType storage;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.recipe << (c.hybrid ? " hybrid " : " llama ") << name_of(c.storage);
}

class EngineCases : public ::testing::TestWithParam<Case> {
 protected:
  SmallModel model_{GetParam().recipe, GetParam().hybrid, GetParam().storage};
};

/// To the bit: each row of a product is computed alike, whatever shares the pass.
TEST_P(EngineCases, ScoresAreThoseOfScore) {
  const std::vector<Tokens> prompts = some_prompts(20);
  std::vector<Score> expected;
  for (const Tokens& prompt : prompts)
    expected.push_back(score(model_.decoder, model_.pass(), prompt, KeepLogits::yes));

  Engine engine(model_.decoder, model_.pass(), {.batch = 8, .tokens = 100});
  EXPECT_TRUE(engine.reads_together());
  std::vector<GenerationTask> tasks;
  for (const Tokens& prompt : prompts) tasks.push_back(scoring(prompt));
  const std::vector<Generation> results = engine.run(std::move(tasks), never);
  ASSERT_EQ(results.size(), prompts.size());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    ASSERT_EQ(results[p].prompt_scores.size(), prompts[p].size() - 1);
    for (std::size_t i = 0; i + 1 < prompts[p].size(); ++i) {
      EXPECT_EQ(results[p].prompt_scores[i].token, prompts[p][i + 1]);
      EXPECT_EQ(results[p].prompt_scores[i].log_probability, expected[p].log_probabilities[i]);
    }
    const std::span<const float> last = std::span(expected[p].logits).last(256);
    const auto best = static_cast<std::int32_t>(std::ranges::max_element(last) - last.begin());
    EXPECT_EQ(results[p].tokens, Tokens{best});
    EXPECT_EQ(results[p].finish, Finish::length);
    EXPECT_EQ(results[p].scores[0].log_probability, NextTokenLogProbabilities(last)[best]);
  }
}

TEST_P(EngineCases, ContinuationsAreThoseOfOneAlone) {
  const std::vector<Tokens> prompts = some_prompts(6);
  const SamplingOptions sampling{.temperature = 0.7, .top_k = 40, .top_p = 0.9, .seed = 5};
  std::vector<Tokens> expected;
  for (const Tokens& prompt : prompts) {
    Pass pass = model_.pass();
    Session session = model_.decoder.start(100);
    std::vector<float> logits = model_.decoder.extend(pass, session, prompt, true);
    Tokens& tokens = expected.emplace_back();
    while (tokens.size() < 12) {
      tokens.push_back(sample(logits, sampling, static_cast<std::uint64_t>(session.length())));
      logits = model_.decoder.extend(pass, session, std::span(&tokens.back(), 1), true);
    }
  }
  Engine engine(model_.decoder, model_.pass(), {.batch = 4, .tokens = 30});
  std::vector<GenerationTask> tasks;
  for (const Tokens& prompt : prompts) tasks.push_back(generating(prompt, 12, sampling));
  const std::vector<Generation> results = engine.run(std::move(tasks), never);
  for (std::size_t p = 0; p < prompts.size(); ++p) EXPECT_EQ(results[p].tokens, expected[p]) << p;
}

INSTANTIATE_TEST_SUITE_P(All, EngineCases,
                         ::testing::Values(Case{"bf16", false, DType::bf16}, Case{"bf16", true, DType::bf16},
                                           Case{"bf16", false, DType::f32}, Case{"fp8", false, DType::bf16},
                                           Case{"mxfp4", true, DType::bf16},
                                           Case{"nvfp4", false, DType::bf16},
                                           Case{"nvfp4", true, DType::bf16},
                                           Case{"tetrad", true, DType::bf16}));

TEST(Engine, NamesTheLikeliest) {
  SmallModel model("bf16");
  const Tokens prompt = {1, 2, 3};
  const Score expected = score(model.decoder, model.pass(), prompt, KeepLogits::yes);
  Engine engine(model.decoder, model.pass(), {});
  const Generation result = engine.run({scoring(prompt)}, never)[0];
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<std::pair<float, std::int32_t>> order;  // likeliest first
    for (std::int32_t id = 0; id < 256; ++id)
      order.emplace_back(-expected.logits[i * 256 + static_cast<std::size_t>(id)], id);
    std::ranges::sort(order);
    const auto& likeliest = result.prompt_scores[i].likeliest;
    ASSERT_EQ(likeliest.size(), 3U);
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(likeliest[k].first, order[k].second);
    EXPECT_GE(likeliest[0].second, likeliest[1].second);
  }
}

TEST(Engine, EndsWhereItShould) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  const SamplingOptions sampling{.temperature = 1, .seed = 9};
  const Tokens all = engine.run({generating({5, 6}, 20, sampling)}, never)[0].tokens;
  ASSERT_EQ(all.size(), 20U);

  GenerationTask task = generating({5, 6}, 20, sampling);
  task.ends = {300, all[7]};  // no token is 300
  const std::size_t first = static_cast<std::size_t>(std::ranges::find(all, all[7]) - all.begin());
  Generation result = engine.run({task}, never)[0];
  EXPECT_EQ(result.tokens, Tokens(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first) + 1));
  EXPECT_EQ(result.finish, Finish::stop);

  task.ends.clear();
  task.is_enough = [](std::span<const std::int32_t> generated) { return generated.size() == 4; };
  result = engine.run({task}, never)[0];
  EXPECT_EQ(result.tokens, Tokens(all.begin(), all.begin() + 4));
  EXPECT_EQ(result.finish, Finish::stop);

  task = generating({5, 6}, 0, sampling);
  result = engine.run({task}, never)[0];
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(result.finish, Finish::length);
  task.score_prompt = true;
  EXPECT_EQ(engine.run({task}, never)[0].prompt_scores.size(), 1U);
}

TEST(Engine, ServesManyThreadsAtOnce) {
  SmallModel model("bf16");
  const std::vector<Tokens> prompts = some_prompts(8);
  Engine engine(model.decoder, model.pass(), {.batch = 3, .tokens = 64});
  const SamplingOptions sampling{.temperature = 1, .seed = 1};
  std::vector<Tokens> expected;
  for (const Tokens& prompt : prompts)
    expected.push_back(engine.run({generating(prompt, 5, sampling)}, never)[0].tokens);
  std::vector<Tokens> results(prompts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    threads.emplace_back(
        [&, i] { results[i] = engine.run({generating(prompts[i], 5, sampling)}, never)[0].tokens; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, expected);
  for (const Tokens& tokens : results) EXPECT_EQ(tokens.size(), 5U);
}

TEST(Engine, DropsWhatIsAbandonedAndGoesOn) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {.batch = 1});
  std::atomic<int> steps = 0;
  GenerationTask task = generating({1}, 1'000'000, {});
  task.max_tokens = 100'000;
  task.is_enough = [&](std::span<const std::int32_t>) {
    ++steps;
    return false;
  };
  EXPECT_EQ(failure_of([&] { engine.run({task}, [&] { return steps > 3; }); }), Kind::abandoned);
  EXPECT_EQ(engine.run({generating({1}, 2, {})}, never)[0].tokens.size(), 2U);
  EXPECT_LT(steps, 100'000);
}

TEST(Engine, FailureIsTheRequestsAlone) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  EXPECT_THROW(engine.run({generating({1, 256}, 2, {})}, never), Error) << "no such token";
  GenerationTask task = generating({1}, 2, {});
  task.is_enough = [](std::span<const std::int32_t>) -> bool {
    throw std::runtime_error("thrown on purpose");
  };
  EXPECT_EQ(failure_of([&] { engine.run({task}, never); }), Kind::failed);
  EXPECT_EQ(engine.run({generating({1}, 2, {})}, never)[0].tokens.size(), 2U);
}

TEST(Engine, RequestsTakeTurns) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {.batch = 1});
  std::string order;
  const auto task = [&](char name) {
    GenerationTask result = generating({1}, 1, {});
    result.is_enough = [&, name](std::span<const std::int32_t>) {
      order += name;
      return false;
    };
    return result;
  };
  Failure first = Kind::failed, second = Kind::failed;
  AtOnce clients(engine);
  clients.add({task('a'), task('b'), task('c')}, first);
  clients.add({task('1'), task('2')}, second);
  clients.wait();
  EXPECT_EQ(order, "a1b2c");
  EXPECT_EQ(first, std::nullopt);
  EXPECT_EQ(second, std::nullopt);
}

TEST(Engine, ALongRequestHoldsUpNobody) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {.batch = 4});
  std::atomic<bool> is_enough = false;
  std::atomic<int> ended = 0;
  GenerationTask endless = generating({1, 2}, 100'000, {});
  endless.is_enough = [&](std::span<const std::int32_t> tokens) {
    const bool ends = is_enough || tokens.size() == 100'000;
    if (ends) ++ended;
    return ends;
  };
  GenerationTask quick = generating({3}, 3, {});
  quick.is_enough = [&](std::span<const std::int32_t> tokens) {
    if (tokens.size() == 3) {
      EXPECT_EQ(ended, 0);
      is_enough = true;
    }
    return false;
  };
  Failure long_failure = Kind::failed, quick_failure = Kind::failed;
  AtOnce clients(engine);
  clients.add(std::vector<GenerationTask>(12, endless), long_failure);
  clients.add({quick}, quick_failure);
  clients.wait();
  EXPECT_EQ(long_failure, std::nullopt);
  EXPECT_EQ(quick_failure, std::nullopt);
  EXPECT_EQ(ended, 12);
}

TEST(Engine, WhatFailsFailsAlone) {
  SmallModel model("bf16", true);
  for (const auto& parameter : model.decoder.parameters())  // token 7 makes numbers that are none
    if (parameter->name == "embedding.weight")
      parameter->value.f32()[7 * 32] = std::numeric_limits<float>::quiet_NaN();
  model.decoder.weights_changed();
  Engine engine(model.decoder, model.pass(), {.batch = 4});
  GenerationTask throws = generating({1}, 2, {});
  throws.is_enough = [](std::span<const std::int32_t>) -> bool { throw std::runtime_error("on purpose"); };
  Failure not_finite, thrown, good = Kind::failed;
  {
    AtOnce clients(engine);
    clients.add({scoring({1, 7, 2})}, not_finite);
    clients.add({throws}, thrown);
    clients.add({scoring({1, 2, 3})}, good);
  }
  EXPECT_EQ(not_finite, Kind::failed);
  EXPECT_EQ(thrown, Kind::failed);
  EXPECT_EQ(good, std::nullopt);
  EXPECT_TRUE(engine.is_well());
}

TEST(Engine, TellsWhatComesWhileItComes) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {.batch = 2});
  std::vector<GenerationTask> tasks;
  for (const std::int32_t token : {1, 2, 3}) {
    tasks.push_back(scoring({token, 9}));
    tasks.back().max_tokens = 20;
  }
  std::vector<Generation> told(3);
  std::vector<int> ends(3);
  const auto results = engine.run(tasks, never, [&](std::size_t task, const Generation& news, bool is_done) {
    EXPECT_EQ(ends[task], 0) << "nothing comes after the end";
    ends[task] += is_done ? 1 : 0;
    EXPECT_TRUE(!news.tokens.empty() || is_done);
    EXPECT_EQ(news.scores.size(), news.tokens.size());
    EXPECT_EQ(news.prompt_scores.empty(), !told[task].tokens.empty()) << "with the first, and only then";
    told[task].prompt_scores.insert(told[task].prompt_scores.end(), news.prompt_scores.begin(),
                                    news.prompt_scores.end());
    told[task].tokens.insert(told[task].tokens.end(), news.tokens.begin(), news.tokens.end());
  });
  EXPECT_EQ(ends, std::vector<int>({1, 1, 1}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told[i].tokens, results[i].tokens);
    EXPECT_EQ(told[i].prompt_scores.size(), 1U);
  }
}

TEST(Engine, WorkThatNobodyTakesIsDropped) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {.batch = 1});
  const auto refuse = [](std::size_t, const Generation&, bool) {
    throw std::runtime_error("the client went away");
  };
  EXPECT_THROW(engine.run({generating({1}, 100'000, {})}, never, refuse), std::runtime_error);
  EXPECT_EQ(engine.run({generating({1}, 2, {})}, never)[0].tokens.size(), 2U);
}

TEST(Engine, RefusesWhatIsNoNumber) {
  SmallModel model("bf16");
  for (const auto& parameter : model.decoder.parameters())
    if (parameter->name == "norm.weight") parameter->value.f32()[0] = std::numeric_limits<float>::quiet_NaN();
  model.decoder.weights_changed();
  Engine engine(model.decoder, model.pass(), {});
  EXPECT_EQ(failure_of([&] { engine.run({generating({1}, 2, {})}, never); }), Kind::failed);
  GenerationTask task = scoring({1, 2});
  task.max_tokens = 0;
  EXPECT_EQ(failure_of([&] { engine.run({task}, never); }), Kind::failed);
}

TEST(Engine, StopsInTheMiddle) {
  SmallModel model("bf16");
  Engine engine(model.decoder, model.pass(), {});
  std::atomic<bool> running = false;
  GenerationTask task = generating({1}, 100'000, {});
  task.is_enough = [&](std::span<const std::int32_t>) {
    running = true;
    return false;
  };
  Failure failure;
  std::thread client([&] { failure = failure_of([&] { engine.run({task}, never); }); });
  while (!running) std::this_thread::yield();
  engine.stop();
  client.join();
  EXPECT_EQ(failure, Kind::unavailable);
  EXPECT_EQ(failure_of([&] { engine.run({generating({1}, 2, {})}, never); }), Kind::unavailable);
}

}  // namespace
}  // namespace tetrad::testing::engine_test
