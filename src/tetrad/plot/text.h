// SPDX-License-Identifier: Apache-2.0
#pragma once
// Names and numbers as people read them. Names come from files and paths, so they may hold anything.

#include <cstddef>
#include <string>
#include <string_view>

namespace tetrad {

/// With a question mark for everything that is not UTF-8 or would move a terminal's cursor, and, if `ascii`,
/// for everything outside ASCII.
std::string printable(std::string_view text, bool ascii = false);

/// Characters of text that is UTF-8; what a terminal shows of it is as wide, short of wide and combining
/// ones.
std::size_t character_count(std::string_view text);

/// printable(), and fit to stand between tags and in attributes.
std::string escape_xml(std::string_view text);

/// "1.23M": at most three significant digits, without trailing zeros.
std::string format_count(double count);

}  // namespace tetrad
