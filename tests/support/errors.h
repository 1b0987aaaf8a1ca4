#pragma once
// What a message for bad input must be like.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tetrad/core/error.h"

namespace tetrad::testing {

/// The action must throw Error (bad input) with all these words in a message fit for a terminal.
template <typename Action>
void expect_bad_input(const Action& action, const std::vector<std::string>& words, std::string_view of) {
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
  ADD_FAILURE() << "no error, wanted: " << words.front() << "\nof: " << of;
}

}  // namespace tetrad::testing
