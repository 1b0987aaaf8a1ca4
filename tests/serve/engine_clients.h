// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tests ask of an engine, alone or many at once.

#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tetrad/serve/engine.h"

namespace tetrad::testing::engine_test {

using Tokens = std::vector<std::int32_t>;

inline bool never() { return false; }

/// Prompts of different lengths, from 1 token on.
inline std::vector<Tokens> some_prompts(std::size_t count) {
  std::mt19937 generator(3);
  std::uniform_int_distribution<std::int32_t> pick(1, 255);
  std::vector<Tokens> prompts(count);
  for (std::size_t i = 0; i < count; ++i) {
    prompts[i].resize(1 + (i * 7) % 40);
    for (std::int32_t& token : prompts[i]) token = pick(generator);
  }
  return prompts;
}

/// As lm-evaluation-harness asks: scores of the prompt, and one token more.
inline GenerationTask scoring(const Tokens& prompt) {
  GenerationTask task;
  task.prompt = prompt;
  task.max_tokens = 1;
  task.sampling.temperature = 0;
  task.score_prompt = task.score_generated = true;
  task.likeliest = 3;
  return task;
}

inline GenerationTask generating(const Tokens& prompt, std::int64_t count, const SamplingOptions& sampling) {
  GenerationTask task;
  task.prompt = prompt;
  task.max_tokens = count;
  task.sampling = sampling;
  return task;
}

using Kind = EngineError::Kind;
using Failure = std::optional<Kind>;  //!< nothing: it went well

inline Failure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const EngineError& error) {
    return error.kind();
  }
  return std::nullopt;
}

/// Clients whose requests the engine meets all at once: it is held in a pass until all of them wait.
class AtOnce {
 public:
  explicit AtOnce(Engine& engine) : engine_(engine) {
    clients_.emplace_back([this] {
      GenerationTask task = generating({1}, 1, {});
      task.is_enough = [this](std::span<const std::int32_t>) {
        is_held_ = true;
        while (waiting_ < wanted_) std::this_thread::yield();
        return true;
      };
      engine_.run({task}, never);
    });
    while (!is_held_) std::this_thread::yield();
  }
  AtOnce(const AtOnce&) = delete;
  AtOnce& operator=(const AtOnce&) = delete;
  ~AtOnce() { wait(); }

  /// Returns when the request waits, because a client is only asked whether it is still there when it does.
  void add(std::vector<GenerationTask> tasks, Failure& failure) {
    const int before = waiting_;
    clients_.emplace_back([this, &failure, tasks = std::move(tasks)] {
      failure = failure_of([&] {
        engine_.run(tasks, [this, told = false]() mutable {
          if (!std::exchange(told, true)) ++waiting_;
          return false;
        });
      });
    });
    while (waiting_ == before) std::this_thread::yield();
  }
  void wait() {
    wanted_ = 0;
    for (std::thread& client : clients_) client.join();
    clients_.clear();
  }

 private:
  Engine& engine_;
  std::atomic<bool> is_held_ = false;
  std::atomic<int> waiting_ = 0;
  std::atomic<int> wanted_ = 1000;
  std::vector<std::thread> clients_;
};

}  // namespace tetrad::testing::engine_test
