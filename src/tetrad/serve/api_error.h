// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is wrong with a request, as OpenAI's interface says it.

#include <string>
#include <utility>

#include "tetrad/http/request.h"

namespace tetrad {

class ApiError : public HttpError {
 public:
  ApiError(int status, const std::string& message, std::string parameter = {}, std::string code = {})
      : HttpError(status, message), parameter_(std::move(parameter)), code_(std::move(code)) {}

  const std::string& parameter() const {
    return parameter_;
  }                                                  //!< which one of the request is wrong; empty: none
  const std::string& code() const { return code_; }  //!< for programs; empty: none

 private:
  std::string parameter_;
  std::string code_;
};

}  // namespace tetrad
