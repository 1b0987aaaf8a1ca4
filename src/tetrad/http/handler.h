// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a server is asked, and by whom: the side of the server that knows what is said.

#include <cstddef>
#include <functional>

#include "tetrad/http/memory_budget.h"
#include "tetrad/http/request.h"
#include "tetrad/http/response.h"

namespace tetrad {

/// Whether the client no longer waits for the answer.
using IsGone = std::function<bool()>;

/// The one who asked, while it is answered.
struct HttpExchange {
  IsGone is_gone;
  MemoryShare& memory;  //!< held until the answer is sent
};

/// All of it is called by several threads at once.
class HttpHandler {
 public:
  HttpHandler() = default;
  HttpHandler(const HttpHandler&) = delete;
  HttpHandler& operator=(const HttpHandler&) = delete;
  virtual ~HttpHandler() = default;

  /// Called when the head of a request has come, before its body is read. Throws HttpError to refuse it.
  /// Returns how many bytes of memory it may take for each byte of the body, which is one of them.
  virtual std::size_t admit(const HttpRequest& /*head*/) { return 1; }
  /// HEAD comes as GET. What it throws is answered: HttpError as it says, anything else with 500. `exchange`
  /// lives until the answer is sent.
  virtual HttpResponse answer(const HttpRequest& request, const HttpExchange& exchange) = 0;
  /// The response that says what is wrong.
  virtual HttpResponse describe(const HttpError& error) const = 0;
  /// One per request.
  virtual void log(const HttpRecord& /*record*/) {}
};

}  // namespace tetrad
