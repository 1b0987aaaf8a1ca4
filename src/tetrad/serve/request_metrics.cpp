// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/request_metrics.h"

#include <fmt/format.h>

namespace tetrad {

void RequestMetrics::add(const std::string& route, const HttpRecord& record) {
  const std::lock_guard lock(mutex_);
  ++requests_[{route, record.status}];
  Times& times = times_[route];
  ++times.count;
  times.sum += record.seconds;
  for (std::size_t i = 0; i < kBuckets.size(); ++i)
    if (record.seconds <= kBuckets[i]) ++times.buckets[i];
}

void RequestMetrics::write(Exposition& out) const {
  const std::lock_guard lock(mutex_);
  if (requests_.empty()) return;
  out.family("requests_total", "counter", "Requests that were answered, by route and status.");
  for (const auto& [key, count] : requests_)
    out.sample(count, {{"route", key.first}, {"status", std::to_string(key.second)}});
  out.family("request_seconds", "histogram", "From the last byte of a request to the last of its answer.");
  for (const auto& [route, times] : times_) {
    for (std::size_t i = 0; i < kBuckets.size(); ++i)
      out.sample(times.buckets[i], {{"route", route}, {"le", fmt::format("{}", kBuckets[i])}}, "_bucket");
    out.sample(times.count, {{"route", route}, {"le", "+Inf"}}, "_bucket");
    out.sample(times.sum, {{"route", route}}, "_sum");
    out.sample(times.count, {{"route", route}}, "_count");
  }
}

}  // namespace tetrad
