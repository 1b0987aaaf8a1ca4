// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/step_record.h"

#include <nlohmann/json.hpp>
#include <numeric>

namespace tetrad {
namespace {

/// CBOR, which keeps every bit of a number, and those that are not finite.
std::string to_bytes(const StepRecord& record) {
  nlohmann::json json = {{"losses", record.losses},
                         {"interrupted", record.interrupted},
                         {"asks_to_save", record.asks_to_save},
                         {"has_saved", record.has_saved}};
  if (record.non_finite) json["non_finite"] = *record.non_finite;
  std::string bytes;
  nlohmann::json::to_cbor(json, bytes);
  return bytes;
}

void append(const std::string& bytes, StepRecord& all) {
  const nlohmann::json json = nlohmann::json::from_cbor(bytes);
  for (const nlohmann::json& loss : json.at("losses")) all.losses.push_back(loss.get<double>());
  if (!all.non_finite && json.contains("non_finite"))
    all.non_finite = json.at("non_finite").get<std::string>();
  all.interrupted = all.interrupted || json.at("interrupted").get<bool>();
  all.asks_to_save = all.asks_to_save || json.at("asks_to_save").get<bool>();
  all.has_saved = all.has_saved || json.at("has_saved").get<bool>();
}

}  // namespace

double StepRecord::loss_sum() const { return std::accumulate(losses.begin(), losses.end(), 0.0); }

StepRecord share(Communicator& ranks, const StepRecord& own) {
  if (ranks.size() == 1) return own;
  StepRecord all;
  for (const std::string& bytes : ranks.share(to_bytes(own))) append(bytes, all);
  return all;
}

}  // namespace tetrad
