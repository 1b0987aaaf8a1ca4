// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Hugging Face model whose tensors need not be in files: what a folder says about it, and a table of them.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tetrad/interchange/export_source.h"
#include "tetrad/interchange/model_description.h"
#include "tetrad/interchange/piece_source.h"

namespace tetrad {

class HfModelSource final : public ExportSource {
 public:
  /// `folder` has config.json and what else model_description.h reads; `tensors` must outlive this object.
  /// Throws Error (bad input) where they do not fit each other.
  HfModelSource(Threads& threads, const std::filesystem::path& folder, const TensorTable& tensors);

  const ModelConfig& model() const override { return description_.model; }
  Family family() const override { return family_; }
  const std::vector<MappedParameter>& parameters() const override { return parameters_; }
  std::vector<float> values(const MappedParameter& parameter) const override;
  const Tokenizer* tokenizer() const override { return description_.tokenizer.get(); }
  std::vector<std::filesystem::path> text_files() const override { return text_files_; }

  const ModelDescription& description() const { return description_; }
  /// The module of a piece, as this model's tensors call it.
  std::string module_name(const Piece& piece) const { return module_of(pieces_.local(piece.names.hf)); }
  /// Where one matrix of ours is several of theirs (q, k and v; gate and up) and one of those is among
  /// `modules`, makes each a parameter and a linear layer of its own.
  void take_apart(const std::set<std::string>& modules);

 private:
  std::int64_t sequence() const override { return description_.sequence; }

  ModelDescription description_;
  Family family_;
  std::vector<MappedParameter> parameters_;
  std::vector<std::filesystem::path> text_files_;
  HfPieceSource pieces_;
  std::set<std::string> copied_;  //!< parameters of which there is a second copy
};

}  // namespace tetrad
