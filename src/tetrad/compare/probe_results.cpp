// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/probe_results.h"
#include "tetrad/io/json_text.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

/// JSON has no NaN: it is written as null.
double real(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

void write_probes(const std::filesystem::path& file, const ArmProbes& probes) {
  Json gradients = Json::array();
  for (const GradientDistance& g : probes.gradients)
    gradients.push_back({{"parameter", g.parameter}, {"cosine", g.cosine}, {"norm_ratio", g.norm_ratio}});
  Json losses;
  if (const auto& l = probes.losses)
    losses = {{"loss", l->loss},
              {"difference", l->difference.mean},
              {"standard_error", l->difference.error},
              {"sequences", l->sequences},
              {"tokens", l->tokens}};
  Json checks;
  if (probes.checks) checks = Json::array();
  for (const CheckResult& c : probes.checks.value_or(std::vector<CheckResult>()))
    checks.push_back(json_of(c));
  Json recovery;
  if (const auto& r = probes.recovery)
    recovery = {{"nan_ok", r->nan_ok}, {"nan", r->nan}, {"resume_ok", r->resume_ok}, {"resume", r->resume}};
  const Json all = {{"gradients", gradients}, {"losses", losses}, {"recovery", recovery}, {"checks", checks}};
  write_file_atomically(file, json_text(all, 2) + "\n");
}

ArmProbes read_probes(const std::filesystem::path& file) {
  ArmProbes probes;
  std::ifstream stream(file);
  if (!stream) return probes;
  try {
    const Json all = Json::parse(stream);
    for (const Json& g : all.at("gradients"))
      probes.gradients.push_back({g.at("parameter"), real(g.at("cosine")), real(g.at("norm_ratio"))});
    // Comparisons of 0.1 have no such probe.
    if (const auto l = all.find("losses"); l != all.end() && !l->is_null())
      probes.losses = LossDistance{
          real(l->at("loss")),
          {real(l->at("difference")), real(l->at("standard_error")), l->at("sequences") < kFewestValues},
          l->at("sequences"),
          l->at("tokens")};
    if (const Json& checks = all.at("checks"); !checks.is_null()) probes.checks.emplace();
    for (const Json& c : all.at("checks"))
      probes.checks->push_back({c.at("name"), real(c.at("value")), c.at("unit"), c.at("count")});
    if (const Json& r = all.at("recovery"); !r.is_null())
      probes.recovery = Recovery{r.at("nan_ok"), r.at("nan"), r.at("resume_ok"), r.at("resume")};
  } catch (const Json::exception& error) {
    fail("{} cannot be used ({}); remove it, and its probes are made again", file.string(), error.what());
  }
  return probes;
}

}  // namespace tetrad
