// SPDX-License-Identifier: Apache-2.0
#pragma once
// The paths that the server answers, and how. It does so from the first moment; what needs the model is
// answered 503 until there is one.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tetrad/http/handler.h"
#include "tetrad/serve/api_key.h"
#include "tetrad/serve/model_routes.h"
#include "tetrad/serve/request_metrics.h"

namespace tetrad {

struct ServiceOptions {
  std::string version;                   //!< of the program
  std::string build;                     //!< of the program
  std::optional<ApiKey> key = {};        //!< that everything but /health and /ready asks for
  const MemoryBudget* memory = nullptr;  //!< shown with the figures
  bool logs_json = false;                //!< one object per line
  std::function<void(const std::string& line)> log =
      {};  //!< takes one line per request, from several threads
};

class Service final : public HttpHandler {
 public:
  explicit Service(ServiceOptions options) : options_(std::move(options)) {}

  /// From here on there is a model. To be called once; the engine must outlive the service.
  void open(Engine& engine, CompletionContext context);
  /// No more requests are wanted.
  void begin_to_stop() { is_stopping_ = true; }
  /// Ends the requests under way with an error.
  void give_up();

  std::size_t admit(const HttpRequest& head) override;
  HttpResponse answer(const HttpRequest& request, const HttpExchange& exchange) override;
  HttpResponse describe(const HttpError& error) const override;
  void log(const HttpRecord& record) override;

 private:
  struct Route;
  static std::span<const Route> routes();
  static const Route* find(const std::string& path);

  /// Throws HttpError (503) while there is none.
  ModelRoutes& model() const;
  HttpResponse health() const;
  HttpResponse ready() const;
  HttpResponse version() const;
  HttpResponse metrics() const;

  ServiceOptions options_;
  RequestMetrics metrics_;
  std::unique_ptr<ModelRoutes> owned_;
  std::atomic<ModelRoutes*> model_ = nullptr;
  std::atomic<bool> is_stopping_ = false;
};

/// A line of a log for programs: an object with time, peer, method, route, status, bytes, seconds, the counts
/// of the note (tokens, for example) and its text.
std::string json_line(const HttpRecord& record, const std::string& route);

}  // namespace tetrad
