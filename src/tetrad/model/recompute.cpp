// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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

Keep RecomputePlan::of(std::int64_t block, char letter) const {
  return blocks_.empty() ? keep_of(recompute_, letter) : blocks_.at(static_cast<std::size_t>(block));
}

std::string RecomputePlan::describe(std::string_view pattern) const {
  const auto is = [&](Recompute recompute) {
    for (std::size_t i = 0; i < pattern.size(); ++i)
      if (of(static_cast<std::int64_t>(i), pattern[i]) != keep_of(recompute, pattern[i])) return false;
    return true;
  };
  for (const Recompute named : {Recompute::none, Recompute::cheap, Recompute::ffn, Recompute::full})
    if (is(named)) return std::string(name_of(named));
  constexpr std::array kKinds = {std::pair('M', "Mamba-2"), std::pair('-', "feed-forward"),
                                 std::pair('*', "attention")};
  std::string text;
  for (const auto& [keep, amount] : {std::pair(Keep::products, "cheap"), std::pair(Keep::nothing, "full")})
    for (const auto& [letter, kind] : kKinds) {
      std::int64_t count = 0;
      for (std::size_t i = 0; i < pattern.size(); ++i)
        if (pattern[i] == letter && blocks_.at(i) == keep) ++count;
      if (count > 0)
        text += fmt::format("{}{} in {} of {} {} blocks", text.empty() ? "" : ", ", amount, count,
                            std::ranges::count(pattern, letter), kind);
    }
  return text;
}

}  // namespace tetrad
