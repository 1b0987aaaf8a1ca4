// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the values of a model's parameters come from when it is imported.

#include <set>
#include <span>
#include <string>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/interchange/serving_names.h"
#include "tetrad/interchange/tensor_map.h"
#include "tetrad/interchange/tensor_table.h"

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
  /// `tensors` must outlive this object.
  HfPieceSource(Threads& threads, const TensorTable& tensors);

  void claim(const Piece& piece) override;
  bool claim_copy(const Piece& copy) override;
  void check_all_claimed() const override;
  void read(const Piece& piece, std::span<float> out) const override;

  /// As the tensor is called here: transformers 5 may save Nemotron-H's backbone as `model`.
  std::string local(const std::string& name) const;

 private:
  /// nullptr: the tensor holds plain values.
  const ServingNames* nvfp4_names(const Piece& piece) const;
  void take(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype);
  void take_scalar(const std::string& name);
  void read_nvfp4(const std::string& module, const ServingNames& names, std::span<float> out) const;

  Threads& threads_;
  const TensorTable& tensors_;
  bool renamed_ = false;
  std::set<std::string, std::less<>> claimed_;
};

/// Claims all pieces, and returns the parameters of which the source has a second copy. Everything that can
/// be known without reading values is known then: what is missing, what is too much, what has another shape
/// or type.
std::set<std::string> claim_all(const std::vector<MappedParameter>& parameters, PieceSource& source);

/// The values of a parameter, whose pieces were claimed. Throws Error (bad input) if it is one of those with
/// a copy, and this is another matrix.
std::vector<float> read_parameter(const MappedParameter& parameter, const PieceSource& source,
                                  bool is_copied);

}  // namespace tetrad
