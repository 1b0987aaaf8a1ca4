// SPDX-License-Identifier: Apache-2.0
#pragma once
// What operations of frameworks need besides their tensors: a context for the device and stream that they are
// on, and the precisions and quantizers that Python has announced.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>

#include "tetrad/c/tetrad.h"

namespace tetrad::python {

/// Where an operation computes.
struct Place {
  std::int32_t device = -1;  //!< of CUDA; -1: the processor
  void* stream = nullptr;
  std::int32_t threads = 0;  //!< of the processor; 0: as many as the library takes

  friend bool operator<(const Place& a, const Place& b) {
    return std::tie(a.device, a.stream, a.threads) < std::tie(b.device, b.stream, b.threads);
  }
};

/// A context that nobody else uses meanwhile: one that is free, or a new one.
class Context {
 public:
  explicit Context(const Place& place);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();
  tetrad_context* get() const { return context_; }

 private:
  Place place_;
  tetrad_context* context_ = nullptr;
};

/// Throws what the library says.
inline void check(tetrad_status status) {
  if (status != TETRAD_OK) throw std::runtime_error(std::string("tetrad: ") + tetrad_last_error());
}

/// What tetrad_python_announce_… was called with. Throws if it was not, in this process.
const tetrad_precision* precision_of(std::int64_t id);
const tetrad_quantizer* quantizer_of(std::int64_t id);

}  // namespace tetrad::python

extern "C" {
/// The precision stays for the life of the process. Ids follow from what a precision is, so that a compiled
/// program that was kept on a disk finds it in the next process.
TETRAD_API tetrad_status tetrad_python_announce_precision(int64_t id, const tetrad_precision* precision);
TETRAD_API tetrad_status tetrad_python_announce_quantizer(int64_t id, const tetrad_quantizer* quantizer);
/// How many threads contexts of the processor have where their framework does not say; 0: the library's
/// default.
TETRAD_API void tetrad_python_set_threads(int32_t threads);
}
