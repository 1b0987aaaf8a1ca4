// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/error.h"

#include <cerrno>
#include <system_error>

namespace tetrad {

void fail_errno(const std::string& what, ExitCode exit_code) {
  const int code = errno;
  throw Error(fmt::format("{}: {}", what, std::generic_category().message(code)), exit_code);
}

}  // namespace tetrad
