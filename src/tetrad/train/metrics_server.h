// SPDX-License-Identifier: Apache-2.0
#pragma once
// Answers GET /metrics while a run trains, on threads of its own. It ends with the object.

#include <memory>
#include <string>

#include "tetrad/train/metrics_page.h"

namespace tetrad {

class MetricsServer {
 public:
  /// `address` as in run.metrics_address. Throws Error (bad input) if it is none, or taken. The page must
  /// outlive the server.
  MetricsServer(const std::string& address, const MetricsPage& page);
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer();

  std::string url() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tetrad
