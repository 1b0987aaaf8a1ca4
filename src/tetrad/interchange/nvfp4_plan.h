// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which layers of a model are served in NVFP4, and the codes of their weights: those of the forward pass.

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/interchange/tensor_map.h"
#include "tetrad/ops/backend.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad {

class Nvfp4Plan {
 public:
  /// The layers whose forward pass is NVFP4 at the end of training with `precision`; those that stay in BF16
  /// or FP8 are left as they are. Throws Error (bad input)
  /// if there is one whose values no server can compute: another format, a transform, weights that are
  /// rounded stochastically.
  Nvfp4Plan(const PrecisionConfig& precision, const ModelConfig& model,
            const std::vector<MappedParameter>& parameters);

  /// Those of `layers`, by name, whose forward pass is NVFP4; FP8 beside NVFP4 is left as it is. Throws Error
  /// (bad input) as above, and says `remedy`.
  Nvfp4Plan(const std::map<std::string, LinearPrecision>& layers, std::string_view remedy);

  /// nullptr: the layer stays as it is.
  const QuantSpec* find(const MappedParameter& parameter) const;
  std::size_t size() const { return layers_.size(); }
  /// Throws Error (bad input) if no layer is NVFP4: there would be nothing to serve in it.
  void require_layers() const;
  /// What training did when it quantized inputs and servers do not: "4/6 block scaling". They make plain
  /// NVFP4 of every input, blocks of 16 rounded to nearest; the codes of weights they take as they are.
  const std::set<std::string>& only_in_training() const { return only_in_training_; }

 private:
  void add(const std::string& layer, const LinearPrecision& precision, std::string_view remedy);

  std::map<std::string, QuantSpec, std::less<>> layers_;  //!< weight's, by the name of the linear layer
  std::set<std::string> only_in_training_;
};

/// The scales that a tensor with this amax is encoded and decoded with; both 1 if it is zero.
struct Nvfp4Scale {
  float encode = 1;  //!< what values were multiplied by: 2688 / amax
  float decode = 1;  //!< amax / 2688
};
Nvfp4Scale nvfp4_scale(float amax, Scaling scaling = Scaling::standard);

/// A weight [rows, cols] as files have it. No scale byte is NaN or zero: where a block's scale underflowed to
/// zero, it is the smallest there is, and the codes are zero.
struct Nvfp4Weight {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::byte> codes;   //!< [rows, cols/2], even element in the low nibble
  std::vector<std::byte> scales;  //!< E4M3, [rows, cols/16]
  Nvfp4Scale scale;

  std::span<const std::byte> code_rows(std::int64_t first, std::int64_t count) const;
  std::span<const std::byte> scale_rows(std::int64_t first, std::int64_t count) const;
};

Nvfp4Weight quantize_weight(Backend& cpu, const MappedParameter& parameter, const QuantSpec& spec,
                            std::span<const float> values);

}  // namespace tetrad
