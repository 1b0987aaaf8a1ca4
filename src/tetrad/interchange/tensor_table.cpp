// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/tensor_table.h"

#include <fmt/ranges.h>

#include "tetrad/core/error.h"

namespace tetrad {

const TensorInfo& TensorTable::get(std::string_view name, const std::vector<std::int64_t>& shape) const {
  const TensorInfo* info = find(name);
  TETRAD_CHECK(info != nullptr, "{}: the tensor {} is missing: is config.json that of these weights?",
               where(), quoted_name(name));
  TETRAD_CHECK(info->shape == shape,
               "{}: the tensor {} has the shape [{}], but config.json makes it [{}]: is it that of these "
               "weights?",
               where(), quoted_name(name), fmt::join(info->shape, ", "), fmt::join(shape, ", "));
  return *info;
}

}  // namespace tetrad
