// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is answered with the help of a model that is loaded.

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tetrad/http/handler.h"
#include "tetrad/serve/completions.h"
#include "tetrad/serve/engine.h"

namespace tetrad {

/// May be used by several threads at once.
class ModelRoutes {
 public:
  /// The engine must outlive it.
  ModelRoutes(Engine& engine, CompletionContext context);

  HttpResponse complete(const HttpRequest& request, const HttpExchange& exchange, bool is_chat);
  HttpResponse tokenize(const HttpRequest& request) const;
  HttpResponse detokenize(const HttpRequest& request, const HttpExchange& exchange) const;
  HttpResponse tokenizer_info() const;
  HttpResponse models() const;
  HttpResponse model(const std::string& name) const;

  Engine& engine() const { return engine_; }
  const CompletionContext& context() const { return context_; }

 private:
  struct Work;

  HttpResponse stream(std::shared_ptr<Work> work, const IsGone& is_gone);
  /// Throws HttpError where the engine has no result.
  std::vector<Generation> generate(const CompletionRequest& request, const IsGone& is_gone,
                                   const Engine::OnProgress& on_progress);
  nlohmann::json model_json() const;
  const Tokenizer& tokenizer() const;

  Engine& engine_;
  CompletionContext context_;
  std::int64_t started_;                        //!< seconds since 1970
  std::uint64_t seed_;                          //!< for requests that name none, with their number
  std::atomic<std::uint64_t> completions_ = 0;  //!< so far
};

}  // namespace tetrad
