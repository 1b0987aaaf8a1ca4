#include "tetrad/backend/cuda/gated_norm_check.h"

#include "tetrad/core/error.h"

namespace tetrad::cuda {

std::int64_t gated_norm_group(std::int64_t width, std::int64_t groups) {
  TETRAD_CHECK(groups > 0 && width % groups == 0, "gated_norm: {} channels cannot be cut into {} groups",
               width, groups);
  return width / groups;
}

}  // namespace tetrad::cuda
