// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checkpoint, ready to be used: its model with weights, its precision, its tokenizer.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tetrad/checkpoint/checkpoint_store.h"
#include "tetrad/core/display.h"
#include "tetrad/model/decoder.h"
#include "tetrad/recipe/recipe.h"
#include "tetrad/tokenizer/tokenizer.h"
#include "tetrad/train/config.h"

namespace tetrad {

/// Throws Error (no_checkpoint) unless the files of a checkpoint agree about its model, and its step is one.
/// The manifest only says that they are what was written, which may be anything; so this comes before memory
/// is taken for the model that they claim to have.
void check_claims(const std::filesystem::path& checkpoint);

/// The folder of a checkpoint, verified: `path` is one, or a run, whose newest good one is taken. Those that
/// cannot be used are named on stderr. Throws Error (no_checkpoint).
OpenCheckpoint find_checkpoint(const std::filesystem::path& path, Display* display = nullptr);

/// nullptr: the checkpoint has none.
std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const std::filesystem::path& checkpoint);

/// The same model at another precision (LoadOptions::precision): nothing of the training recipe remains but
/// the layers that stay high.
PrecisionConfig with_precision(PrecisionConfig trained, const std::string& wanted);

struct LoadOptions {
  /// "trained": as at the end of training; or a recipe; or "f32": nothing is rounded.
  std::string precision = "trained";
  std::int64_t batch = 1;      //!< sequences at a time, for evaluation
  std::int64_t sequence = 0;   //!< 0: as in training
  Display* display = nullptr;  //!< where checkpoints that cannot be used are named; null: nowhere
  bool reads_only = true;      //!< it is not differentiated, and needs no memory for that
};

class LoadedModel {
 public:
  /// Throws Error (no_checkpoint) if the checkpoint is damaged, (bad input) for a precision that there is
  /// not.
  LoadedModel(const std::filesystem::path& checkpoint, const LoadOptions& options, Backend& backend);

  const Config& config() const { return config_; }
  Decoder& decoder() { return *decoder_; }
  const std::filesystem::path& path() const { return checkpoint_.path(); }
  std::int64_t sequence() const { return sequence_; }

  /// A pass at the chosen precision.
  Pass pass() const;

  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  /// Throws Error (bad input) if the checkpoint has none.
  const Tokenizer& tokenizer() const;
  /// The tokens that end a text: those that the model was made for, and the tokenizer's separator.
  std::vector<std::int32_t> ends_of_text() const;

 private:
  OpenCheckpoint checkpoint_;
  Config config_;
  std::int64_t sequence_ = 0;
  std::unique_ptr<Recipe> recipe_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace tetrad
