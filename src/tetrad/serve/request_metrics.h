// SPDX-License-Identifier: Apache-2.0
#pragma once
// Figures about requests, as Prometheus reads them.

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tetrad/http/response.h"
#include "tetrad/io/exposition.h"

namespace tetrad {

/// May be used by several threads at once.
class RequestMetrics {
 public:
  /// `route`: one of few, whatever clients ask.
  void add(const std::string& route, const HttpRecord& record);
  void write(Exposition& out) const;

 private:
  /// Upper ends of the histogram's buckets, in seconds.
  static constexpr std::array kBuckets = {0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0};
  struct Times {
    std::array<std::int64_t, kBuckets.size()> buckets = {};  //!< requests that took no longer
    std::int64_t count = 0;
    double sum = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::int64_t> requests_;  //!< by route and status
  std::map<std::string, Times> times_;                            //!< by route
};

}  // namespace tetrad
