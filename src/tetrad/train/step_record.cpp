// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/step_record.h"

#include <nlohmann/json.hpp>

namespace tetrad {
namespace {

/// CBOR, which keeps every bit of a number, and those that are not finite.
std::string to_bytes(const StepRecord& record) {
  nlohmann::json json = {{"losses", record.losses},
                         {"non_finite", record.non_finite},
                         {"interrupted", record.interrupted},
                         {"asks_to_save", record.asks_to_save},
                         {"has_saved", record.has_saved}};
  std::string bytes;
  nlohmann::json::to_cbor(json, bytes);
  return bytes;
}

void append(const std::string& bytes, StepRecord& all) {
  const nlohmann::json json = nlohmann::json::from_cbor(bytes);
  all.losses.merge(json.at("losses").get<decltype(all.losses)>());
  all.non_finite.merge(json.at("non_finite").get<decltype(all.non_finite)>());
  all.interrupted = all.interrupted || json.at("interrupted").get<bool>();
  all.asks_to_save = all.asks_to_save || json.at("asks_to_save").get<bool>();
  all.has_saved = all.has_saved || json.at("has_saved").get<bool>();
}

}  // namespace

double StepRecord::loss_sum() const {
  double sum = 0;
  for (const auto& [microbatch, loss] : losses) sum += loss;
  return sum;
}

StepRecord share(Communicator& ranks, const StepRecord& own) {
  if (ranks.size() == 1) return own;
  StepRecord all;
  for (const std::string& bytes : ranks.share(to_bytes(own))) append(bytes, all);
  return all;
}

}  // namespace tetrad
