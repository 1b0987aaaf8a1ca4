// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checkpoint of ours, open for export: nothing of it is in memory but what is being looked at.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/checkpoint/checkpoint_store.h"
#include "tetrad/core/display.h"
#include "tetrad/interchange/tensor_map.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/tokenizer/bpe.h"
#include "tetrad/train/config.h"

namespace tetrad {

class CheckpointSource {
 public:
  /// A run's folder or one of its checkpoints. Throws Error (no_checkpoint) if it is damaged, (bad input) if
  /// no other program has such a model.
  explicit CheckpointSource(const std::filesystem::path& path, Display* display = nullptr);

  const std::filesystem::path& path() const { return checkpoint_.path(); }
  const Config& config() const { return config_; }
  Family family() const { return family_; }
  const std::vector<MappedParameter>& parameters() const { return parameters_; }

  /// The f32 values of a parameter; throws Error (no_checkpoint) if they are not those of this model, or not
  /// finite.
  std::vector<float> values(const MappedParameter& parameter) const;

  /// nullptr: the run had none, or it is unknown.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  /// As tokenizer.json; empty if there is no tokenizer. Bytes become a BPE without merges.
  std::string tokenizer_json() const;
  /// Tokens that the model can look at: as many as it was made for, at least as many as in training.
  std::int64_t context() const;
  /// The token in front of every text.
  std::optional<std::int32_t> begin_of_text() const;
  /// What tokenizers call eos_token.
  std::optional<std::int32_t> end_of_text() const;
  /// All tokens that end a text.
  std::vector<std::int32_t> ends_of_text() const;

 private:
  OpenCheckpoint checkpoint_;
  Config config_;
  Family family_;
  std::vector<MappedParameter> parameters_;
  std::unique_ptr<SafetensorsFile> weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace tetrad
