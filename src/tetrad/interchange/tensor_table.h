// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors by Hugging Face's names, wherever they lie.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/io/safetensors_header.h"

namespace tetrad {

class TensorTable {
 public:
  TensorTable() = default;
  TensorTable(const TensorTable&) = delete;
  TensorTable& operator=(const TensorTable&) = delete;
  virtual ~TensorTable() = default;

  /// nullptr: there is no such tensor.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  virtual std::vector<std::string> names() const = 0;  //!< sorted
  virtual const std::string& where() const = 0;        //!< for messages

  /// The elements of a tensor that exists: where they lie, or copied into `memory`.
  virtual std::span<const std::byte> bytes(std::string_view name, std::vector<std::byte>& memory) const = 0;

  /// Throws Error (bad input) that names the tensor if it is not there or has another shape.
  const TensorInfo& get(std::string_view name, const std::vector<std::int64_t>& shape) const;
};

}  // namespace tetrad
