// SPDX-License-Identifier: Apache-2.0
#pragma once
// The paths that the server answers, and how.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tetrad/http/server.h"
#include "tetrad/serve/completions.h"
#include "tetrad/serve/engine.h"

namespace tetrad {

class Service final : public HttpHandler {
 public:
  using Log = std::function<void(const std::string& line)>;

  /// `log` takes one line per request, from several threads.
  Service(Engine& engine, CompletionContext context, Log log);

  HttpResponse answer(const HttpRequest& request, const IsGone& is_gone) override;
  /// OpenAI's error object.
  HttpResponse describe(const HttpError& error) const override;
  void log(const std::string& line) override { log_(line); }

 private:
  struct Work;

  HttpResponse complete(const HttpRequest& request, const IsGone& is_gone);
  HttpResponse stream(std::shared_ptr<Work> work, const IsGone& is_gone);
  /// Throws HttpError where the engine has no result.
  std::vector<Generation> generate(const CompletionRequest& request, const IsGone& is_gone,
                                   const Engine::OnProgress& on_progress);
  HttpResponse tokenize(const HttpRequest& request) const;
  HttpResponse detokenize(const HttpRequest& request) const;
  HttpResponse tokenizer_info() const;
  HttpResponse models() const;
  HttpResponse model() const;
  HttpResponse health() const;
  nlohmann::json model_json() const;
  const Tokenizer& tokenizer() const;

  Engine& engine_;
  CompletionContext context_;
  Log log_;
  std::int64_t started_;                        //!< seconds since 1970
  std::uint64_t seed_;                          //!< for requests that name none, with their number
  std::atomic<std::uint64_t> completions_ = 0;  //!< so far
  std::atomic<std::int64_t> tokens_ = 0;        //!< tokens of the completions under way
};

}  // namespace tetrad
