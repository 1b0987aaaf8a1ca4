// SPDX-License-Identifier: Apache-2.0
#pragma once
// A run's complete state as files of a checkpoint, and back: model.safetensors, optimizer.safetensors,
// state.json, config.yaml and, if the model has one, tokenizer.json.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tetrad/checkpoint/checkpoint_store.h"
#include "tetrad/checkpoint/run_identity.h"
#include "tetrad/model/decoder.h"
#include "tetrad/ops/messages.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad {

/// Backend::bits_depend_on(), by name.
using BitsDependOn = std::map<std::string, std::string>;

/// What differs between the two, for people; empty: nothing, or nobody recorded what was before.
std::string changes_of_bits(const BitsDependOn& before, const BitsDependOn& now);

/// Everything that is not a tensor. Random numbers are counter-based and need no state.
// NOLINTNEXTLINE(bugprone-exception-escape): moving a json does not throw, though it is not declared so
struct RunState {
  std::int64_t step = 0;  //!< steps that are done
  std::int64_t skips_in_row = 0;
  nlohmann::json data;  //!< cursors of the sources
  nlohmann::json loss_watch;
  std::string tokenizer_hash;   //!< empty: nobody knows
  std::string build;            //!< which program trained it
  BitsDependOn bits_depend_on;  //!< empty in checkpoints of programs that did not record it
  RunIdentity identity;         //!< the same

  /// Checkpoints of the schedule are those that train.checkpoint.every asks for, and the first one. Where
  /// else a run was saved, by the clock or by a signal, is chance, and must not decide what a rollback goes
  /// back to.
  std::int64_t scheduled_step =
      0;                       //!< the newest of them so far, this one included, were they written or not
  std::int64_t rollbacks = 0;  //!< to that one
  std::int64_t rollback_samples = 0;  //!< that those leave out

  struct Best {
    std::int64_t step = 0;
    double loss = 0;  //!< mean of the sources' held-out losses
  };
  std::optional<Best> best;  //!< among the steps of the schedule that were evaluated
};

/// Texts that travel with a checkpoint so that it can be used on its own.
struct SnapshotTexts {
  std::string config;     //!< resolved YAML
  std::string tokenizer;  //!< tokenizer.json; empty: none
};

/// How ranks bring their parts of a snapshot together.
struct SnapshotMessages {
  std::unique_ptr<Messages> way;
  std::chrono::milliseconds patience;  //!< with a rank that does not answer
  std::uint64_t snapshots = 0;         //!< so far
};

/// The tensors are borrowed from decoder and optimizer: to be read before the next update. Nothing is copied.
CheckpointContents make_snapshot(Decoder& decoder, AdamWOptimizer& optimizer, const RunState& state,
                                 const SnapshotTexts& texts);

/// The same where ranks share the weights: all of them call this. What rank 0 gets is to be written; what the
/// others get, kept until it is.
CheckpointContents make_shared_snapshot(Decoder& decoder, AdamWOptimizer& optimizer, const RunState& state,
                                        const SnapshotTexts& texts, SnapshotMessages& messages);

/// Whether moments may be stored otherwise than the optimizer has them. What is f32 is then rounded to BF16
/// as the update before the checkpoint would have done.
enum class MomentTypes : std::uint8_t { same, may_change };

/// Of what ranks share, each reads its own. Throws Error (no_checkpoint) if the files do not fit the model.
RunState load_snapshot(const std::filesystem::path& checkpoint, Decoder& decoder, AdamWOptimizer& optimizer,
                       MomentTypes types = MomentTypes::same);

/// The weights alone, for evaluation and generation. Refuses weights that are not finite.
void load_weights(const std::filesystem::path& checkpoint, Decoder& decoder);

/// The rest alone.
RunState load_state(const std::filesystem::path& checkpoint);

/// state.json.
std::string state_text(const RunState& state);

}  // namespace tetrad
