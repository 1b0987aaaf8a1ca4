// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checkpoint of ours, open for export: nothing of it is in memory but what is being looked at.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tetrad/checkpoint/checkpoint_store.h"
#include "tetrad/core/display.h"
#include "tetrad/interchange/export_source.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/train/config.h"

namespace tetrad {

class CheckpointSource final : public ExportSource {
 public:
  /// A run's folder or one of its checkpoints. Throws Error (no_checkpoint) if it is damaged, (bad input) if
  /// no other program has such a model.
  explicit CheckpointSource(const std::filesystem::path& path, Display* display = nullptr);

  const std::filesystem::path& path() const { return checkpoint_.path(); }
  const Config& config() const { return config_; }
  const ModelConfig& model() const override { return config_.model; }
  Family family() const override { return family_; }
  const std::vector<MappedParameter>& parameters() const override { return parameters_; }
  std::string origin() const override { return path().filename().string(); }

  /// The f32 values of a parameter; throws Error (no_checkpoint) if they are not those of this model, or not
  /// finite.
  std::vector<float> values(const MappedParameter& parameter) const override;

  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }

 private:
  std::int64_t sequence() const override { return config_.train.sequence; }

  OpenCheckpoint checkpoint_;
  Config config_;
  Family family_;
  std::vector<MappedParameter> parameters_;
  std::unique_ptr<SafetensorsFile> weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace tetrad
