#pragma once
// Figures of a running program for Prometheus: GET /metrics gives them as text.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tetrad/io/mapped_file.h"

namespace tetrad {

/// Answers on a thread of its own, one request at a time. A client that is slow or sends nonsense is dropped
/// and never holds up the program.
class MetricsEndpoint {
 public:
  enum class Kind : std::uint8_t { gauge, counter };

  /// `address` is a number such as 127.0.0.1 (this machine only) or 0.0.0.0; port 0 chooses one. Throws Error
  /// (bad input) if it cannot listen there.
  MetricsEndpoint(const std::string& address, int port);
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;
  ~MetricsEndpoint();

  int port() const { return port_; }

  /// From now on. Labels are given as {{"source", "text"}}; a family has the help and kind it was first
  /// given.
  void set(std::string_view name, Kind kind, std::string_view help, double value,
           const std::map<std::string, std::string>& labels = {});
  void add(std::string_view name, std::string_view help, double by,
           const std::map<std::string, std::string>& labels = {});  //!< to a counter

  /// What GET /metrics gives: the text format 0.0.4 of Prometheus, families and labels in order.
  std::string text() const;

 private:
  struct Family {
    Kind kind = Kind::gauge;
    std::string help;
    std::map<std::string, double> values;  //!< by labels, as they are written
  };

  double& value_of(std::string_view name, Kind kind, std::string_view help,
                   const std::map<std::string, std::string>& labels);
  void serve();
  void answer(int connection) const;

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
  FileDescriptor listener_;
  FileDescriptor stop_;  //!< an eventfd that wakes the thread up to end
  int port_ = 0;
  std::thread thread_;
};

}  // namespace tetrad
