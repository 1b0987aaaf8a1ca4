// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/recompute.h"

#include "tetrad/core/error.h"

namespace tetrad {

Recompute recompute_from_name(std::string_view name) {
  if (name == "none") return Recompute::none;
  if (name == "cheap") return Recompute::cheap;
  if (name == "ffn") return Recompute::ffn;
  TETRAD_CHECK(name == "full", "train.recompute: '{}' is none of none, cheap, ffn, full", name);
  return Recompute::full;
}

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::cheap:
      return "cheap";
    case Recompute::ffn:
      return "ffn";
    default:
      return "full";
  }
}

Keep keep_of(Recompute recompute, char letter) {
  switch (recompute) {
    case Recompute::none:
      return Keep::all;
    case Recompute::cheap:
      return Keep::products;
    case Recompute::ffn:
      return letter == '-' ? Keep::nothing : Keep::products;
    default:
      return Keep::nothing;
  }
}

}  // namespace tetrad
