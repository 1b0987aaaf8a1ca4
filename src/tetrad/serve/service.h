#pragma once
// The paths that the server answers, and how.

#include <atomic>
#include <cstdint>
#include <string>

#include "tetrad/serve/completions.h"
#include "tetrad/serve/engine.h"
#include "tetrad/serve/http_server.h"

namespace tetrad {

class Service {
 public:
  Service(Engine& engine, CompletionContext context);

  /// May be called by several threads at once. Throws HttpError.
  HttpResponse answer(const HttpRequest& request, const IsGone& is_gone);

 private:
  HttpResponse complete(const HttpRequest& request, const IsGone& is_gone);
  HttpResponse tokenize(const HttpRequest& request) const;
  HttpResponse detokenize(const HttpRequest& request) const;
  HttpResponse tokenizer_info() const;
  HttpResponse models() const;
  const Tokenizer& tokenizer() const;

  Engine& engine_;
  CompletionContext context_;
  std::int64_t started_;                        //!< seconds since 1970
  std::uint64_t seed_;                          //!< of requests that name none, with their number
  std::atomic<std::uint64_t> completions_ = 0;  //!< so far
};

}  // namespace tetrad
