// SPDX-License-Identifier: Apache-2.0
#pragma once
// A secret that requests have to name.

#include <string>
#include <string_view>

#include "tetrad/http/request.h"

namespace tetrad {

class ApiKey {
 public:
  /// Throws Error (bad input) for a key that no header can have, or that is easily guessed: it has at least
  /// 16 characters, none of them white space. `where` begins the message.
  ApiKey(std::string_view key, std::string_view where);

  /// Throws HttpError (401) unless the request has the header 'Authorization: Bearer KEY'. Takes the same
  /// time whatever is wrong with it, so that nobody can find it out letter by letter.
  void check(const HttpRequest& request) const;

 private:
  std::string digest_;
};

}  // namespace tetrad
