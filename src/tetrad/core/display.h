// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where people read what happens while a library works. Libraries print nothing themselves: the program says
// what a display is.

#include <string>

namespace tetrad {

class Display {
 public:
  Display() = default;
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;
  virtual ~Display() = default;

  virtual void say(const std::string& line) = 0;
  /// A line that the next one may replace.
  virtual void progress(const std::string& line) { say(line); }
};

}  // namespace tetrad
