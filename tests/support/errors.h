#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tetrad/core/error.h"

namespace tetrad::testing {

/// The action must throw Error (bad input) with all these words in its message.
inline void expect_refused(const std::function<void()>& action, const std::vector<std::string>& words) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.exit_code(), ExitCode::bad_input) << message;
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), message.npos) << word << " in: " << message;
    EXPECT_LT(message.size(), 1000U);
    return;
  }
  ADD_FAILURE() << "no error, wanted: " << ::testing::PrintToString(words);
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
