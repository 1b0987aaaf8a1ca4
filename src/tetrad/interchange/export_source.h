// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model on its way to other programs: what it is, and its parameters one at a time.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/interchange/tensor_map.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

class ExportSource {
 public:
  ExportSource() = default;
  ExportSource(const ExportSource&) = delete;
  ExportSource& operator=(const ExportSource&) = delete;
  virtual ~ExportSource() = default;

  virtual const ModelConfig& model() const = 0;
  virtual Family family() const = 0;
  virtual const std::vector<MappedParameter>& parameters() const = 0;
  /// The f32 values of a parameter, all of them finite; throws Error otherwise.
  virtual std::vector<float> values(const MappedParameter& parameter) const = 0;
  /// The checkpoint that it was; empty: none.
  virtual std::string origin() const { return {}; }

  /// nullptr: there is none, or it is unknown.
  virtual const Tokenizer* tokenizer() const = 0;
  /// Files about texts that a folder takes over as they are; none: the tokenizer is written anew.
  virtual std::vector<std::filesystem::path> text_files() const { return {}; }
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
  /// Tokens of a sequence in training.
  virtual std::int64_t sequence() const = 0;
};

}  // namespace tetrad
