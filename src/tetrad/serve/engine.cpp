// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "tetrad/core/threads.h"
#include "tetrad/eval/score.h"

namespace tetrad {
namespace {

constexpr const char* kStopping = "the server is stopping";
constexpr const char* kNoMemory = "out of memory; start the server with a smaller --batch or --max-length";

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

std::vector<Generation> Engine::run(std::vector<GenerationTask> tasks, const IsAbandoned& is_abandoned,
                                    const OnProgress& on_progress) {
  const JobPointer job = enqueue(std::move(tasks), static_cast<bool>(on_progress));
  const auto let_go = [&] {
    const std::lock_guard lock(mutex_);
    job->is_abandoned = true;
    job->waiting.clear();
    return std::exchange(job->all, {});
  };
  try {
    wait(*job, is_abandoned, on_progress);
  } catch (...) {
    let_go();
    throw;
  }
  std::vector<Generation> results;
  for (const SequencePointer& sequence : let_go()) results.push_back(std::move(sequence->result));
  return results;
}

Engine::JobPointer Engine::enqueue(std::vector<GenerationTask> tasks, bool wants_progress) {
  TETRAD_CHECK(!tasks.empty(), "there are no sequences to read");
  Group all;
  for (GenerationTask& task : tasks) {
    TETRAD_CHECK(!task.prompt.empty(), "there are no tokens to read");
    for (const std::int32_t token : task.prompt)
      TETRAD_CHECK(token >= 0 && token < decoder_.config().vocab,
                   "token id {} is not below the model's vocabulary, {}", token, decoder_.config().vocab);
    all.push_back(std::make_shared<Sequence>());
    all.back()->task = std::move(task);
  }
  auto job = std::make_shared<Job>();
  job->wants_progress = wants_progress;
  const std::lock_guard lock(mutex_);
  if (stopping_) throw EngineError(EngineError::Kind::unavailable, kStopping);
  turns_.push_back(job);
  // From here on they hold each other, until run() lets go.
  for (const SequencePointer& sequence : all) sequence->job = job;
  job->waiting.assign(all.begin(), all.end());
  job->all = std::move(all);
  work_.notify_all();
  return job;
}

/// Until all sequences are done, and reported.
void Engine::wait(Job& job, const IsAbandoned& is_abandoned, const OnProgress& on_progress) {
  constexpr std::chrono::milliseconds kTick{100};
  const auto has_news = [&] {
    return std::ranges::any_of(job.all, [&](const SequencePointer& sequence) {
      return (sequence->is_done && !sequence->was_reported) || !sequence->news.tokens.empty();
    });
  };
  std::unique_lock lock(mutex_);
  while (!std::ranges::all_of(job.all, &Sequence::was_reported)) {
    if (done_.wait_for(lock, kTick, has_news)) {
      report(lock, job, on_progress);
      continue;
    }
    lock.unlock();
    if (is_abandoned()) throw EngineError(EngineError::Kind::abandoned, "the client went away");
    lock.lock();
  }
}

void Engine::report(std::unique_lock<std::mutex>& lock, const Job& job, const OnProgress& on_progress) {
  for (std::size_t i = 0; i < job.all.size(); ++i) {
    Sequence& sequence = *job.all[i];
    const bool is_new = sequence.is_done && !sequence.was_reported;
    if (!is_new && sequence.news.tokens.empty()) continue;
    if (is_new && sequence.failure) throw EngineError(*sequence.failure);
    const Generation news = std::exchange(sequence.news, {});
    sequence.was_reported = is_new;
    if (!on_progress) continue;
    lock.unlock();
    on_progress(i, news, is_new);
    lock.lock();
  }
}

EngineFigures Engine::figures() const {
  EngineFigures figures{0, active_, rounds_, prompt_tokens_, generated_tokens_};
  const std::lock_guard lock(mutex_);
  for (const JobPointer& job : turns_) figures.waiting += static_cast<std::int64_t>(job->waiting.size());
  return figures;
}

void Engine::work() {
  Group active;
  while (wait_for_work(active)) {
    active_ = static_cast<std::int64_t>(active.size());
    try {
      for (const Group& group : passes(next_round(active))) step(group);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(100));  // not even for a list: others may free some
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(active, [](const SequencePointer& sequence) { return sequence->is_done; });
    active_ = static_cast<std::int64_t>(active.size());
  }
}

/// Waits until there is some, and takes it up. False: the engine stops.
bool Engine::wait_for_work(Group& active) {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] { return stopping_ || !turns_.empty() || !active.empty(); });
  if (!stopping_) {
    admit(active);
    return true;
  }
  for (const JobPointer& job : turns_) active.insert(active.end(), job->waiting.begin(), job->waiting.end());
  turns_.clear();
  for (const SequencePointer& sequence : active) {
    sequence->failure = EngineError{EngineError::Kind::unavailable, kStopping};
    sequence->is_done = true;
  }
  done_.notify_all();
  return false;
}

void Engine::step(const Group& group) {
  std::optional<EngineError> failure;
  try {
    compute(group);
    is_well_ = true;
  } catch (const std::bad_alloc&) {
    failure = EngineError{EngineError::Kind::unavailable, kNoMemory};
  } catch (const std::exception& exception) {
    failure = EngineError{EngineError::Kind::failed, exception.what()};
    is_well_ = false;
  }
  for (const SequencePointer& sequence : group) {
    if (failure) sequence->failure = failure;
    try {
      sequence->ends = sequence->failure || ends(*sequence);
    } catch (const std::exception& exception) {
      sequence->failure = EngineError{EngineError::Kind::failed, exception.what()};
      sequence->ends = true;
    }
  }
  finish(group);
}

/// Hands on what the pass has brought.
void Engine::finish(const Group& group) {
  std::vector<Session> ended;  // freed without the lock
  for (const SequencePointer& sequence : group)
    if (sequence->ends) ended.push_back(std::move(sequence->session));
  bool has_news = false;
  const std::lock_guard lock(mutex_);
  for (const SequencePointer& sequence : group) {
    if (sequence->job->wants_progress) publish(*sequence);
    has_news |= sequence->ends || sequence->job->wants_progress;
    sequence->is_done = sequence->ends;
    if (sequence->ends) --sequence->job->active;
  }
  if (has_news) done_.notify_all();
}

void Engine::publish(Sequence& sequence) {
  const Generation& result = sequence.result;
  Generation& news = sequence.news;
  if (sequence.published == result.tokens.size() && !sequence.ends) return;  // a part of the prompt was read
  if (sequence.published == 0) news.prompt_scores = result.prompt_scores;
  const auto from = static_cast<std::ptrdiff_t>(sequence.published);
  news.tokens.insert(news.tokens.end(), result.tokens.begin() + from, result.tokens.end());
  if (!result.scores.empty())
    news.scores.insert(news.scores.end(), result.scores.begin() + from, result.scores.end());
  news.finish = result.finish;
  sequence.published = result.tokens.size();
}

/// Makes room for a sequence; what fails is its own fault and not that of those beside it.
bool Engine::begin(Sequence& sequence) const {
  const GenerationTask& task = sequence.task;
  try {
    sequence.session = decoder_.start(static_cast<std::int64_t>(task.prompt.size()) + task.max_tokens);
    if (task.score_prompt) sequence.result.prompt_scores.resize(task.prompt.size() - 1);
    return true;
  } catch (const std::bad_alloc&) {
    sequence.failure = EngineError{EngineError::Kind::unavailable, kNoMemory};
  } catch (const std::exception& exception) {
    sequence.failure = EngineError{EngineError::Kind::unavailable, exception.what()};
  }
  return false;
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
    const bool reads_prompt = sequence->unread() > 0;
    if (!reads_prompt && sequence->result.tokens.empty()) continue;  // nothing is wanted
    if (sequence->session.length() == 0 && !begin(*sequence)) continue;
    const std::int64_t from = sequence->session.length();
    const auto count = static_cast<std::size_t>(tokens_of(*sequence));
    const std::span<const std::int32_t> tokens =
        reads_prompt ? std::span(task.prompt).subspan(static_cast<std::size_t>(from), count)
                     : std::span<const std::int32_t>(&sequence->next, 1);
    const bool last_only = !reads_prompt || !task.score_prompt;
    const std::int64_t end = from + static_cast<std::int64_t>(count);
    for (std::int64_t token = last_only ? end - 1 : from; token < end; ++token)
      wanted.push_back({sequence.get(), token});
    reads.push_back({&sequence->session, tokens, last_only});
    if (reads_prompt) prompt_tokens_ += static_cast<std::int64_t>(count);
  }
  if (reads.empty()) return;
  const auto vocab = static_cast<std::size_t>(decoder_.config().vocab);
  std::mutex failures;
  decoder_.extend(pass_, reads, [&](std::int64_t first, std::span<const float> logits) {
    decoder_.backend().threads().parallel_for(
        static_cast<std::int64_t>(logits.size() / vocab), [&](std::int64_t i) {
          const Row& row = wanted[static_cast<std::size_t>(first + i)];
          try {
            take(*row.sequence, row.token, logits.subspan(static_cast<std::size_t>(i) * vocab, vocab));
          } catch (const std::exception& exception) {
            const std::lock_guard lock(failures);
            row.sequence->failure = EngineError{EngineError::Kind::failed, exception.what()};
          }
        });
  });
}

/// What follows the token at place `token`: a score of the prompt's next, or a new token. Called by several
/// threads, for different places.
void Engine::take(Sequence& sequence, std::int64_t token, std::span<const float> logits) {
  const GenerationTask& task = sequence.task;
  Generation& result = sequence.result;
  const auto next = static_cast<std::size_t>(token) + 1;
  if (next < task.prompt.size()) {  // which may also be the end of a part that nobody wants scores of
    if (task.score_prompt)
      result.prompt_scores[next - 1] = score_of(task.prompt[next], logits, task.likeliest);
    return;
  }
  if (task.max_tokens == 0) return;
  sequence.next = sample(logits, task.sampling, next);
  if (task.score_generated) result.scores.push_back(score_of(sequence.next, logits, task.likeliest));
  result.tokens.push_back(sequence.next);
  ++generated_tokens_;
}

/// Whether nothing is to be done for the sequence after this pass.
bool Engine::ends(Sequence& sequence) {
  const GenerationTask& task = sequence.task;
  Generation& result = sequence.result;
  if (sequence.unread() > 0) return false;
  if (!result.tokens.empty() &&
      (sequence.next == task.end || (task.is_enough && task.is_enough(result.tokens)))) {
    result.finish = Finish::stop;
    return true;
  }
  return static_cast<std::int64_t>(result.tokens.size()) >= task.max_tokens;
}

}  // namespace tetrad
