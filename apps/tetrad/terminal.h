// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "tetrad/core/display.h"

namespace tetrad::app {

/// stderr. On a terminal a line of progress replaces the one before it; elsewhere each is a line of its own.
/// Who reads it may go away and its disk may be full: what cannot be written is lost, and nothing else
/// happens.
Display& terminal();

/// From now on terminal() says nothing: another rank of the run says it.
void silence_terminal();

/// Text as it is, on stderr, the same way.
void write_to_stderr(std::string_view text);

/// Opens /dev/null where stdin, stdout or stderr are closed: the next file that is opened would take their
/// place, and messages would be written into it.
void open_standard_streams();

}  // namespace tetrad::app
