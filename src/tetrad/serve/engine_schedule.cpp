// SPDX-License-Identifier: Apache-2.0
// Who is computed when.

#include <algorithm>

#include "tetrad/serve/engine.h"

namespace tetrad {

/// Lets go of abandoned sequences, and takes up as many as may be computed at a time: one of each job in
/// turn, and not much more than a pass of prompts at once, because sequences that grow wait meanwhile.
void Engine::admit(Group& active) {
  std::erase_if(active, [](const SequencePointer& sequence) {
    if (sequence->job->is_abandoned) --sequence->job->active;
    return sequence->job->is_abandoned;
  });
  std::erase_if(turns_, [](const JobPointer& job) { return job->is_abandoned; });
  // The last places are for others: a job of many long sequences holds up nobody who wants little.
  const std::int64_t share =
      options_.batch - (options_.batch < 4 ? 0 : std::max<std::int64_t>(options_.batch / 8, 1));
  std::int64_t fresh = 0;
  std::size_t passed_over = 0;
  while (passed_over < turns_.size() && static_cast<std::int64_t>(active.size()) < options_.batch &&
         fresh < options_.tokens) {
    const JobPointer job = std::move(turns_.front());
    turns_.pop_front();
    if (job->active >= share) {
      turns_.push_back(job);
      ++passed_over;
      continue;
    }
    passed_over = 0;
    fresh += tokens_of(*job->waiting.front());
    active.push_back(std::move(job->waiting.front()));
    job->waiting.pop_front();
    ++job->active;
    if (!job->waiting.empty()) turns_.push_back(job);
  }
}

std::int64_t Engine::Sequence::unread() const {
  if (task.max_tokens == 0 && !task.score_prompt) return 0;  // nobody asks what the model makes of it
  return std::max<std::int64_t>(static_cast<std::int64_t>(task.prompt.size()) - session.length(), 0);
}

/// What a sequence has in its next pass.
std::int64_t Engine::tokens_of(const Sequence& sequence) const {
  const std::int64_t unread = sequence.unread();
  return unread > 0 ? std::min(unread, options_.part) : 1;
}

/// Who is computed next: all that grow, prompts that a part is enough for, and a part of one long prompt.
/// Such prompts take turns, and pass over one round in two if short ones come, which then wait for no more
/// than the part that is under way.
Engine::Group Engine::next_round(const Group& active) {
  Group round;
  SequencePointer reader;  // whose last part is longest ago
  std::int64_t fresh = 0;  // tokens of short prompts
  for (const SequencePointer& sequence : active) {
    const std::int64_t unread = sequence->unread();
    if (unread > options_.part) {
      if (!reader || sequence->turn < reader->turn) reader = sequence;
      continue;
    }
    if (unread > 0 && fresh > 0 && fresh + unread > options_.tokens) continue;
    fresh += unread;
    round.push_back(sequence);
  }
  read_a_part_ = reader && (fresh == 0 || !read_a_part_);
  if (read_a_part_) {
    reader->turn = rounds_;
    round.push_back(std::move(reader));
  }
  ++rounds_;
  return round;
}

/// Each sequence once, in passes of not too many tokens.
std::vector<Engine::Group> Engine::passes(const Group& round) const {
  std::vector<Group> result;
  std::int64_t tokens = 0;
  for (const SequencePointer& sequence : round) {
    const std::int64_t count = tokens_of(*sequence);
    if (result.empty() || !together_ || tokens + count > options_.tokens) {
      result.emplace_back();
      tokens = 0;
    }
    result.back().push_back(sequence);
    tokens += count;
  }
  return result;
}

}  // namespace tetrad
