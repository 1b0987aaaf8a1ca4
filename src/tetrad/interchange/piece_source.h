#pragma once
// Where the values of a model's parameters come from when it is imported.

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "tetrad/interchange/tensor_folder.h"
#include "tetrad/interchange/tensor_map.h"

namespace tetrad {

class PieceSource {
 public:
  PieceSource() = default;
  PieceSource(const PieceSource&) = delete;
  PieceSource& operator=(const PieceSource&) = delete;
  virtual ~PieceSource() = default;

  /// Throws Error (bad input) that names the tensor if it is missing, misshaped or of a type that we do not
  /// read.
  virtual void read(const Piece& piece, std::span<float> out) = 0;
  /// Whether there is a second copy of a tied embedding, in `out` if so.
  virtual bool read_copy(const std::string& name, const std::vector<std::int64_t>& shape,
                         std::span<float> out) = 0;
  /// Throws Error (bad input) that names a tensor which nobody has read.
  virtual void check_all_read() const = 0;
};

/// Plain values, ModelOpt's NVFP4 and that of compressed-tensors, told apart by the names and types of the
/// tensors.
class HfPieceSource final : public PieceSource {
 public:
  explicit HfPieceSource(const std::filesystem::path& folder);

  void read(const Piece& piece, std::span<float> out) override;
  bool read_copy(const std::string& name, const std::vector<std::int64_t>& shape,
                 std::span<float> out) override;
  void check_all_read() const override;

 private:
  /// As the tensor is called here: transformers 5 may save Nemotron-H's backbone as `model`.
  std::string local(const std::string& name) const;
  const TensorInfo& take(const std::string& name, const std::vector<std::int64_t>& shape);
  void read_dense(const std::string& name, const std::vector<std::int64_t>& shape, std::span<float> out);
  void read_nvfp4(const std::string& layer, const std::string& codes, const std::vector<std::int64_t>& shape,
                  std::span<float> out);
  float read_scalar(const std::string& name);

  TensorFolder folder_;
  bool renamed_ = false;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tetrad
