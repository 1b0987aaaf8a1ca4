#pragma once
// The parameters of a GGUF file.

#include <filesystem>

#include "tetrad/interchange/gguf_model.h"
#include "tetrad/interchange/piece_source.h"

namespace tetrad {

class GgufPieceSource final : public PieceSource {
 public:
  /// `model` is what the file describes; it must outlive this object, as the file must.
  GgufPieceSource(const GgufFile& file, const ModelConfig& model) : file_(file), model_(model) {}

  void read(const Piece& piece, std::span<float> out) override;
  bool read_copy(const std::string& /*name*/, const std::vector<std::int64_t>& /*shape*/,
                 std::span<float> /*out*/) override {
    return false;  // a file without output.weight is a tied model
  }
  void check_all_read() const override;

 private:
  void decode(const GgufTensor& tensor, std::span<float> out);
  void decode_nvfp4(const GgufTensor& tensor, std::span<float> out);

  const GgufFile& file_;
  const ModelConfig& model_;
  std::set<std::string, std::less<>> read_ = {"rope_freqs.weight"};
};

}  // namespace tetrad
