// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of the work by name, for who wants to see how long they take.

#include <cstdint>
#include <string>
#include <string_view>

namespace tetrad {

/// Is told when parts begin and end; parts lie within each other.
class Trace {
 public:
  Trace() = default;
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  virtual ~Trace() = default;

  virtual void begin(const std::string& name) = 0;
  virtual void end() = 0;
};

/// A part that ends with this object. Nothing happens without a trace.
class TraceRange {
 public:
  TraceRange(Trace* trace, std::string_view name) : trace_(trace) {
    if (trace_ != nullptr) trace_->begin(std::string(name));
  }
  /// "name number"
  TraceRange(Trace* trace, std::string_view name, std::int64_t number) : trace_(trace) {
    if (trace_ != nullptr) trace_->begin(std::string(name) + " " + std::to_string(number));
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
  ~TraceRange() {
    if (trace_ != nullptr) trace_->end();
  }

 private:
  Trace* trace_;
};

}  // namespace tetrad
