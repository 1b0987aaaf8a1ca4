// SPDX-License-Identifier: Apache-2.0
#pragma once
// How this thread rounds. Programs around us may have asked for results that flush small values to zero, or
// for another direction of rounding; our bits are defined without either.

#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

#include <cstdint>

namespace tetrad {

/// While it lives, the thread that made it computes with the default floating-point environment: rounding to
/// nearest even, subnormal values neither flushed nor read as zero, no traps.
class FloatEnvironment {
 public:
#if defined(__x86_64__)
  FloatEnvironment() : saved_(_mm_getcsr()) { set((saved_ & kStatus) | kDefault); }
  ~FloatEnvironment() { set((_mm_getcsr() & kStatus) | (saved_ & ~kStatus)); }
#elif defined(__aarch64__)
  FloatEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    if (saved_ != 0) set(0);
  }
  ~FloatEnvironment() {
    if (saved_ != 0) set(saved_);
  }
#else
  FloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
#endif
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint32_t kStatus = 0x3F;     //!< what has happened, which we leave as it is
  static constexpr std::uint32_t kDefault = 0x1F80;  //!< all exceptions masked

  static void set(std::uint32_t control) {
    if (control != _mm_getcsr()) _mm_setcsr(control);
  }
  std::uint32_t saved_;
#elif defined(__aarch64__)
  static void set(std::uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
  std::uint64_t saved_ = 0;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace tetrad
