#include "tetrad/serve/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "tetrad/core/threads.h"
#include "tetrad/eval/score.h"
#include "tetrad/serve/http_request.h"

namespace tetrad {
namespace {

constexpr const char* kStopping = "the server is stopping";

TokenScore score_of(std::int32_t token, std::span<const float> logits, std::int64_t likeliest) {
  const NextTokenLogProbabilities log_probabilities(logits);
  TokenScore score{token, log_probabilities[token], {}};
  TETRAD_CHECK(std::isfinite(score.log_probability),
               "the model's output is not a finite number: its weights or the input are broken");
  // The few best, kept in order while all are looked at.
  std::vector<std::int32_t> best;
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  for (std::int32_t id = 0; likeliest > 0 && id < static_cast<std::int32_t>(logits.size()); ++id) {
    const bool is_full = static_cast<std::int64_t>(best.size()) == likeliest;
    if (is_full && logit(id) <= logit(best.back())) continue;
    if (is_full) best.pop_back();
    const auto place =
        std::ranges::find_if(best, [&](std::int32_t other) { return logit(id) > logit(other); });
    best.insert(place, id);
  }
  for (const std::int32_t id : best) score.likeliest.emplace_back(id, log_probabilities[id]);
  return score;
}

}  // namespace

Engine::Engine(Decoder& decoder, Pass pass, const EngineOptions& options)
    : decoder_(decoder), pass_(std::move(pass)), options_(options) {
  together_ = decoder_.sequences_are_independent(pass_);
  thread_ = std::thread([this] { work(); });
}

Engine::~Engine() { stop(); }

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<Generation> Engine::run(std::vector<GenerationTask> tasks,
                                    const std::function<bool()>& is_abandoned) {
  constexpr std::chrono::milliseconds kTick{100};
  Group group;
  for (GenerationTask& task : tasks) {
    TETRAD_CHECK(!task.prompt.empty(), "there are no tokens to read");
    group.push_back(std::make_shared<Sequence>());
    group.back()->task = std::move(task);
  }
  std::unique_lock lock(mutex_);
  if (stopping_) throw HttpError(503, kStopping);
  waiting_.insert(waiting_.end(), group.begin(), group.end());
  work_.notify_all();
  const auto all_done = [&] {
    return std::ranges::all_of(group, [](const SequencePointer& sequence) { return sequence->is_done; });
  };
  while (!done_.wait_for(lock, kTick, all_done)) {
    if (!is_abandoned()) continue;
    for (const SequencePointer& sequence : group) sequence->is_abandoned = true;
    throw HttpError(499, "the client went away");
  }
  std::vector<Generation> results;
  for (const SequencePointer& sequence : group) {
    if (!sequence->error.empty()) throw HttpError(sequence->error == kStopping ? 503 : 500, sequence->error);
    results.push_back(std::move(sequence->result));
  }
  return results;
}

void Engine::work() {
  Group active;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !active.empty(); });
      if (stopping_) {
        waiting_.insert(waiting_.end(), active.begin(), active.end());
        for (const SequencePointer& sequence : waiting_) {
          sequence->error = kStopping;
          sequence->is_done = true;
        }
        waiting_.clear();
        done_.notify_all();
        return;
      }
      admit(active);
    }
    for (const Group& group : passes(active)) step(group);
    const std::lock_guard lock(mutex_);
    std::erase_if(active, [](const SequencePointer& sequence) { return sequence->is_done; });
  }
}

/// Takes up as many sequences as may be computed at a time, oldest first, and lets go of abandoned ones.
void Engine::admit(Group& active) {
  const auto is_abandoned = [](const SequencePointer& sequence) { return sequence->is_abandoned; };
  std::erase_if(active, is_abandoned);
  std::erase_if(waiting_, is_abandoned);
  while (!waiting_.empty() && static_cast<std::int64_t>(active.size()) < options_.batch) {
    active.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

/// Each sequence once, in passes of not too many tokens.
std::vector<Engine::Group> Engine::passes(const Group& active) const {
  std::vector<Group> result;
  std::int64_t tokens = 0;
  for (const SequencePointer& sequence : active) {
    const std::int64_t count =
        sequence->result.tokens.empty() ? static_cast<std::int64_t>(sequence->task.prompt.size()) : 1;
    if (result.empty() || !together_ || tokens + count > options_.tokens) {
      result.emplace_back();
      tokens = 0;
    }
    result.back().push_back(sequence);
    tokens += count;
  }
  return result;
}

void Engine::step(const Group& group) {
  std::string error;
  try {
    compute(group);
    for (const SequencePointer& sequence : group) sequence->ends = ends(*sequence);
  } catch (const std::bad_alloc&) {
    error = "out of memory; start the server with a smaller --batch or --max-length";
  } catch (const std::exception& exception) {
    error = exception.what();
  }
  const std::lock_guard lock(mutex_);
  for (const SequencePointer& sequence : group) {
    sequence->error = error;
    sequence->is_done = sequence->ends || !error.empty();
    if (sequence->is_done) sequence->session = {};  // its memory is needed
  }
  done_.notify_all();
}

void Engine::compute(const Group& group) {
  struct Row {
    Sequence* sequence;
    std::int64_t token;  //!< the place in the sequence after which the logits come
  };
  std::vector<Row> wanted;
  std::vector<NewTokens> reads;
  for (const SequencePointer& sequence : group) {
    const GenerationTask& task = sequence->task;
    const auto length = static_cast<std::int64_t>(task.prompt.size());
    const bool begins = sequence->result.tokens.empty();
    if (begins && task.max_tokens == 0 && !task.score_prompt) continue;
    if (begins) {
      sequence->session = decoder_.start(length + task.max_tokens);
      if (task.score_prompt) sequence->result.prompt_scores.resize(task.prompt.size() - 1);
    }
    const std::span<const std::int32_t> tokens =
        begins ? std::span(task.prompt) : std::span<const std::int32_t>(&sequence->next, 1);
    const bool last_only = !begins || !task.score_prompt;
    const std::int64_t end = sequence->session.length() + static_cast<std::int64_t>(tokens.size());
    for (std::int64_t token = last_only ? end - 1 : 0; token < end; ++token)
      wanted.push_back({sequence.get(), token});
    reads.push_back({&sequence->session, tokens, last_only});
  }
  if (reads.empty()) return;
  const auto vocab = static_cast<std::size_t>(decoder_.config().vocab);
  decoder_.extend(pass_, reads, [&](std::int64_t first, std::span<const float> logits) {
    parallel_for(static_cast<std::int64_t>(logits.size() / vocab), [&](std::int64_t i) {
      const Row& row = wanted[static_cast<std::size_t>(first + i)];
      take(*row.sequence, row.token, logits.subspan(static_cast<std::size_t>(i) * vocab, vocab));
    });
  });
}

/// What follows the token at place `token`: a score of the prompt's next, or a new token. Called by several
/// threads, for different places.
void Engine::take(Sequence& sequence, std::int64_t token, std::span<const float> logits) const {
  const GenerationTask& task = sequence.task;
  Generation& result = sequence.result;
  const auto next = static_cast<std::size_t>(token) + 1;
  if (next < task.prompt.size()) {
    result.prompt_scores[next - 1] = score_of(task.prompt[next], logits, task.likeliest);
    return;
  }
  if (task.max_tokens == 0) return;
  sequence.next = sample(logits, task.sampling, next);
  result.tokens.push_back(sequence.next);
  if (task.score_generated) result.scores.push_back(score_of(sequence.next, logits, task.likeliest));
}

/// Whether nothing is to be done for the sequence after this pass.
bool Engine::ends(Sequence& sequence) {
  const GenerationTask& task = sequence.task;
  Generation& result = sequence.result;
  if (!result.tokens.empty() &&
      (sequence.next == task.end || (task.is_enough && task.is_enough(result.tokens)))) {
    result.finish = Finish::stop;
    return true;
  }
  return static_cast<std::int64_t>(result.tokens.size()) >= task.max_tokens;
}

}  // namespace tetrad
