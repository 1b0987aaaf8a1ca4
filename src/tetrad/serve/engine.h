#pragma once
// Computes for many clients at once: sequences that wait are read together in one pass of the decoder, and
// those that grow grow together, a token each per pass. One thread computes.
//
// Where a quantizer's scale spans all tokens of a pass (NVFP4 activations), sequences would change each
// other's results: they are computed one by one, so that an answer depends on its request alone.

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
  std::vector<TokenScore> prompt_scores;  //!< of each token of the prompt but the first, if asked for
  std::vector<std::int32_t> tokens;       //!< generated, with the end token
  std::vector<TokenScore> scores;         //!< of those, if asked for
  Finish finish = Finish::length;
};

struct EngineOptions {
  std::int64_t batch = 16;     //!< sequences at a time
  std::int64_t tokens = 4096;  //!< of one pass, unless a single sequence has more
};

class Engine {
 public:
  /// From here on the decoder is the engine's alone.
  Engine(Decoder& decoder, Pass pass, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  /// Waits for all of them. `is_abandoned` is asked now and then; then the work is dropped. Throws HttpError:
  /// 499 if abandoned, 503 if the engine stops, 500 if the computation fails. May be called by many threads.
  std::vector<Generation> run(std::vector<GenerationTask> tasks, const std::function<bool()>& is_abandoned);

  /// Whether sequences share passes.
  bool reads_together() const { return together_; }

  /// Ends the work under way and refuses more.
  void stop();

 private:
  struct Sequence {
    GenerationTask task;
    Generation result;
    Session session;
    std::string error;      //!< why there is no result
    std::int32_t next = 0;  //!< the newest token, which the session has not read
    bool ends = false;      //!< with this pass
    bool is_done = false;   //!< guarded by the mutex, like the next
    bool is_abandoned = false;
  };
  using SequencePointer = std::shared_ptr<Sequence>;
  using Group = std::vector<SequencePointer>;

  void work();
  void admit(Group& active);
  void step(const Group& group);
  void compute(const Group& group);
  void take(Sequence& sequence, std::int64_t token, std::span<const float> logits) const;
  static bool ends(Sequence& sequence);
  std::vector<Group> passes(const Group& active) const;

  Decoder& decoder_;
  Pass pass_;
  EngineOptions options_;
  bool together_ = false;

  std::mutex mutex_;
  std::condition_variable work_;  //!< there is something to do
  std::condition_variable done_;  //!< some sequence is done
  std::deque<SequencePointer> waiting_;
  bool stopping_ = false;
  std::thread thread_;  //!< last: it uses all of the above
};

}  // namespace tetrad
