// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a message for bad input must be like.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/core/error.h"

namespace tetrad::testing {

/// The action must throw Error (bad input) with all these words in a message fit for a terminal. `of` says,
/// if the test fails, what the action was given.
inline void expect_bad_input(const std::function<void()>& action, const std::vector<std::string>& words,
                             std::string_view of = {}) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.exit_code(), ExitCode::bad_input) << message;
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), message.npos) << word << " in: " << message << "\nof: " << of;
    for (const char c : message)
      EXPECT_GE(static_cast<unsigned char>(c), ' ') << "control character in: " << message;
    EXPECT_LT(message.size(), 1000U) << message;
    return;
  }
  ADD_FAILURE() << "no error, wanted: " << ::testing::PrintToString(words) << "\nof: " << of;
}

/// Whether the action throws Error; anything else it throws is a failure.
inline bool is_refused(const std::function<void()>& action) {
  try {
    action();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::bad_input) << error.what();
    return true;
  }
}

}  // namespace tetrad::testing
