// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the values of a model's parameters come from when it is imported.

#include <set>
#include <span>
#include <string>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/interchange/serving_names.h"
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
  /// read. All are claimed before the first is read, so that nothing is allocated for a model that is only
  /// said to be there.
  virtual void claim(const Piece& piece) = 0;
  /// Whether there is a second copy of a tied embedding, which is claimed then.
  virtual bool claim_copy(const Piece& copy) = 0;
  /// Throws Error (bad input) that names a tensor which was not claimed.
  virtual void check_all_claimed() const = 0;

  /// What was claimed. Throws Error (bad input) for values that are not finite.
  virtual void read(const Piece& piece, std::span<float> out) const = 0;
};

/// Plain values, ModelOpt's NVFP4 and that of compressed-tensors, recognised by the names and types of the
/// tensors.
class HfPieceSource final : public PieceSource {
 public:
  HfPieceSource(Threads& threads, const std::filesystem::path& folder);

  void claim(const Piece& piece) override;
  bool claim_copy(const Piece& copy) override;
  void check_all_claimed() const override;
  void read(const Piece& piece, std::span<float> out) const override;

 private:
  /// As the tensor is called here: transformers 5 may save Nemotron-H's backbone as `model`.
  std::string local(const std::string& name) const;
  /// nullptr: the tensor holds plain values.
  const ServingNames* nvfp4_names(const Piece& piece) const;
  void take(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype);
  void take_scalar(const std::string& name);
  void read_nvfp4(const std::string& module, const ServingNames& names, std::span<float> out) const;

  Threads& threads_;
  TensorFolder folder_;
  bool renamed_ = false;
  std::set<std::string, std::less<>> claimed_;
};

}  // namespace tetrad
