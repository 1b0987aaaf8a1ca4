// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "benchmarks.h"
#include "profile.h"
#include "tetrad/model/decoder.h"
#include "tetrad/serve/engine.h"
#include "with_recipe.h"

namespace tetrad::bench {
namespace {

/// A model with random weights, and the engine of `tetrad serve` without its server.
class Served {
 public:
  Served(Backend& backend, const Config& config, std::int64_t most_clients)
      : vocab_(config.model.vocab),
        recipe_(config.precision, config.model.blocks()),
        decoder_(backend, config.model, 1, config.train.sequence, DType::bf16,
                 {.recompute = Recompute::full, .reads_only = true}),
        engine_(begin(), pass(), {.batch = most_clients}) {}

  /// Seconds until each of so many clients has its tokens: all begin at once, with prompts of their own.
  double seconds(std::int64_t clients, std::int64_t prompt, std::int64_t tokens) {
    std::vector<GenerationTask> tasks(static_cast<std::size_t>(clients));
    std::uint32_t next = 1;
    for (GenerationTask& task : tasks) {
      for (std::int64_t i = 0; i < prompt; ++i) {
        next = next * 1664525u + 1013904223u;
        task.prompt.push_back(static_cast<std::int32_t>(next % static_cast<std::uint32_t>(vocab_)));
      }
      task.max_tokens = tokens;
      task.sampling.temperature = 0;
    }
    const auto begin = std::chrono::steady_clock::now();
    engine_.run(std::move(tasks), [] { return false; });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  Decoder& begin() {
    decoder_.initialize(1);
    return decoder_;
  }
  Pass pass() const {
    Pass result;
    result.recipe = &recipe_;
    result.progress = 1;
    return result;
  }

  std::int64_t vocab_;
  Recipe recipe_;
  Decoder decoder_;
  Engine engine_;
};

std::string name_of(const std::string& recipe, std::int64_t clients) {
  return fmt::format("{}, {} client{}", recipe, clients, clients == 1 ? "" : "s");
}

}  // namespace

void decode(Backend& backend, const Config& config, const DecodeOptions& options, int repeats,
            const Report& report) {
  const std::int64_t most = std::ranges::max(options.clients);
  const auto speed = [&](Served& served, std::int64_t clients) {
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i)
      seconds.push_back(served.seconds(clients, options.prompt, options.tokens));
    return static_cast<double>(clients * options.tokens) / median(seconds);
  };
  for (const std::string& recipe : options.recipes) {
    const Config c = with_recipe(config, recipe);
    Served served(backend, c, most);
    served.seconds(1, options.prompt, 2);  // warms up, and quantizes the weights
    const double one = speed(served, 1);
    for (const std::int64_t clients : options.clients)
      report({name_of(recipe, clients), "tokens/s", clients == 1 ? one : speed(served, clients),
              static_cast<double>(clients) * one, "each as fast as one"});
  }
}

void profile_decode(Backend& backend, const Config& config, const DecodeOptions& options,
                    const Report& report) {
  for (const std::string& recipe : options.recipes)
    for (const std::int64_t clients : options.clients) {
      ProfilingBackend profile(backend);
      Served served(profile, with_recipe(config, recipe), clients);
      served.seconds(1, options.prompt, 2);
      profile.take();
      const double seconds = served.seconds(clients, options.prompt, options.tokens);
      report_profile({name_of(recipe, clients), "token of each",
                      seconds / static_cast<double>(options.tokens), static_cast<int>(options.tokens)},
                     profile.take(), nullptr, report);
    }
}

}  // namespace tetrad::bench
