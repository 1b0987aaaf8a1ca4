// SPDX-License-Identifier: Apache-2.0
#pragma once
// Computes for many clients at once: sequences that wait are read together in one pass of the decoder, and
// those that grow grow together, a token each per pass. One thread computes.
//
// Where a quantizer's scale spans all tokens of a pass (NVFP4 activations), sequences would change each
// other's results: they are computed one by one, so that an answer depends on its request alone.
//
// A long prompt is read in parts, one per pass, between which others go on: those that grow get their token
// with every pass, and short prompts are read in the pass after the one that is under way. Parts begin at
// multiples of their size, whatever else is computed, so that an answer still depends on its request alone.
//
// Requests take turns: a place that becomes free goes to the next request, not to the next sequence of the
// same one, and no request holds all places.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/eval/sampler.h"
#include "tetrad/model/decoder.h"

namespace tetrad {

/// A token at its place, given all before it.
struct TokenScore {
  std::int32_t token = 0;
  double log_probability = 0;                              //!< in nats
  std::vector<std::pair<std::int32_t, double>> likeliest;  //!< tokens for this place; equal ones by id
};

/// A sequence to read and to go on with.
struct GenerationTask {
  std::vector<std::int32_t> prompt;  //!< not empty
  std::int64_t max_tokens = 0;
  SamplingOptions sampling;
  std::optional<std::int32_t> end;  //!< the token that ends a sequence
  bool score_prompt = false;
  bool score_generated = false;
  std::int64_t likeliest = 0;  //!< how many to name beside each score
  /// Asked after each token, by the thread that computes: whether that is enough. Empty: never.
  std::function<bool(std::span<const std::int32_t> generated)> is_enough;
};

enum class Finish : std::uint8_t {
  length,  //!< max_tokens
  stop     //!< the end token, or enough
};

struct Generation {
  std::vector<TokenScore> prompt_scores;  //!< each token of the prompt but the first, if asked for
  std::vector<std::int32_t> tokens;       //!< generated, with the end token
  std::vector<TokenScore> scores;         //!< their scores, if asked for
  Finish finish = Finish::length;
};

/// Why there is no result.
class EngineError : public Error {
 public:
  enum class Kind : std::uint8_t {
    abandoned,    //!< nobody waits for it any more
    unavailable,  //!< the engine stops, or there is no memory now
    failed,       //!< the computation
  };
  EngineError(Kind kind, const std::string& message) : Error(message), kind_(kind) {}

  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

struct EngineOptions {
  std::int64_t batch = 16;     //!< sequences at a time
  std::int64_t tokens = 4096;  //!< tokens in one pass
  std::int64_t part = kPromptPart;  //!< most tokens of one prompt in one pass; how long others have to wait
};

/// What the engine is at, and has done so far.
struct EngineFigures {
  std::int64_t waiting = 0;           //!< sequences without a place
  std::int64_t active = 0;            //!< sequences with one
  std::int64_t rounds = 0;            //!< in each of which every sequence that grows got a token
  std::int64_t prompt_tokens = 0;     //!< that were read
  std::int64_t generated_tokens = 0;  //!< that were written
};

class Engine {
 public:
  /// From here on the decoder is the engine's alone.
  Engine(Decoder& decoder, Pass pass, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  using IsAbandoned = std::function<bool()>;
  /// What has come of a task since the last call; `finish` counts where it is done.
  using OnProgress = std::function<void(std::size_t task, const Generation& news, bool is_done)>;

  /// Waits for all of them. `is_abandoned` is asked now and then; then the work is dropped, and also if
  /// `on_progress` throws; both are called by the thread that waits. Throws EngineError. May be called by
  /// many threads.
  std::vector<Generation> run(std::vector<GenerationTask> tasks, const IsAbandoned& is_abandoned,
                              const OnProgress& on_progress = {});

  /// Whether sequences share passes.
  bool reads_together() const { return together_; }
  /// Whether the last pass could be computed. A device that is broken stays so.
  bool is_well() const { return is_well_; }
  EngineFigures figures() const;

  /// Ends the work under way and refuses more.
  void stop();

 private:
  struct Sequence;
  using SequencePointer = std::shared_ptr<Sequence>;
  using Group = std::vector<SequencePointer>;

  /// The tasks of one call of run(). All of it is guarded by the mutex. It lets go of its sequences, which
  /// hold it, when run() ends.
  struct Job {
    Group all;                            //!< owned by the thread that waits
    std::deque<SequencePointer> waiting;  //!< for a place
    std::int64_t active = 0;
    bool is_abandoned = false;
    bool wants_progress = false;
  };
  using JobPointer = std::shared_ptr<Job>;

  struct Sequence {
    GenerationTask task;
    Generation result;
    Session session;
    std::optional<EngineError> failure;  //!< why there is no result
    std::int32_t next = 0;               //!< the newest token, which the session has not read
    bool ends = false;                   //!< with this pass
    std::int64_t turn = -1;              //!< the round in which it last read a part; -1: none yet

    /// Tokens of the prompt that are still to be read.
    std::int64_t unread() const;
    JobPointer job;
    // Guarded by the mutex:
    Generation news;            //!< since the last progress, where that is wanted
    std::size_t published = 0;  //!< tokens that were news
    bool is_done = false;
    bool was_reported = false;  //!< that it is done
  };

  JobPointer enqueue(std::vector<GenerationTask> tasks, bool wants_progress);
  void wait(Job& job, const IsAbandoned& is_abandoned, const OnProgress& on_progress);
  static void report(std::unique_lock<std::mutex>& lock, const Job& job, const OnProgress& on_progress);
  void work();
  bool wait_for_work(Group& active);
  void admit(Group& active);
  void step(const Group& group);
  void compute(const Group& group);
  bool begin(Sequence& sequence) const;
  void take(Sequence& sequence, std::int64_t token, std::span<const float> logits);
  static bool ends(Sequence& sequence);
  static void publish(Sequence& sequence);
  void finish(const Group& group);
  Group next_round(const Group& active);
  std::vector<Group> passes(const Group& round) const;
  std::int64_t tokens_of(const Sequence& sequence) const;

  Decoder& decoder_;
  Pass pass_;
  EngineOptions options_;
  bool together_ = false;
  std::atomic<bool> is_well_ = true;
  bool read_a_part_ = false;  //!< of a long prompt, in the last round; used by the thread that computes
  std::atomic<std::int64_t> active_ = 0, rounds_ = 0, prompt_tokens_ = 0, generated_tokens_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable work_;  //!< there is something to do
  std::condition_variable done_;  //!< there is something to report
  std::deque<JobPointer> turns_;  //!< jobs with sequences that wait, in the order of their turns
  bool stopping_ = false;
  std::thread thread_;  //!< last: it uses all of the above
};

}  // namespace tetrad
