// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a GGUF file.

#include <filesystem>

#include "tetrad/core/threads.h"
#include "tetrad/interchange/gguf_model.h"
#include "tetrad/interchange/piece_source.h"

namespace tetrad {

class GgufPieceSource final : public PieceSource {
 public:
  /// `model` is what the file describes; it must outlive this object, as the file must.
  GgufPieceSource(Threads& threads, const GgufFile& file, const ModelConfig& model)
      : threads_(threads), file_(file), header_(file.header()), model_(model) {}

  void claim(const Piece& piece) override;
  bool claim_copy(const Piece& /*copy*/) override { return false; }  // without output.weight it is tied
  void check_all_claimed() const override;
  void read(const Piece& piece, std::span<float> out) const override;

 private:
  void decode(const GgufTensor& tensor, std::span<float> out) const;
  void decode_blocks(const GgufTensor& tensor, std::span<float> out) const;

  Threads& threads_;
  const GgufFile& file_;
  const GgufHeader& header_;
  const ModelConfig& model_;
  std::set<std::string, std::less<>> claimed_ = {std::string(kGgufRopeFactors)};
};

}  // namespace tetrad
