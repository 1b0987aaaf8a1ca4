// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/metrics_server.h"

#include <atomic>
#include <memory>
#include <thread>

#include "tetrad/http/server.h"
#include "tetrad/io/exposition.h"

namespace tetrad {
namespace {

HttpResponse text_response(int status, std::string text) {
  HttpResponse response;
  response.status = status;
  response.content_type = kExpositionType;
  response.body = std::move(text);
  return response;
}

class Pages final : public HttpHandler {
 public:
  explicit Pages(const MetricsPage& metrics) : metrics_(metrics) {}

  HttpResponse answer(const HttpRequest& request, const HttpExchange& /*exchange*/) override {
    if (request.path != "/" && request.path != "/metrics")
      throw HttpError(404, "there is nothing but /metrics");
    if (request.method != "GET") {
      HttpResponse response = describe(HttpError(405, "/metrics is asked with GET"));
      response.headers.emplace_back("Allow", "GET, HEAD");
      return response;
    }
    return text_response(200, request.path == "/"
                                  ? "tetrad train: its figures for Prometheus are at /metrics\n"
                                  : metrics_.text());
  }
  HttpResponse describe(const HttpError& error) const override {
    return text_response(error.status(), std::string(error.what()) + "\n");
  }

 private:
  const MetricsPage& metrics_;
};

ServerOptions options_for(const std::string& address) {
  ServerOptions options;
  options.address = parse_address(address, "run.metrics_address");
  options.connections = 8;
  options.limits.body = 0;
  return options;
}

}  // namespace

struct MetricsServer::Parts {
  Parts(const std::string& address, const MetricsPage& page)
      : pages(std::make_unique<Pages>(page)), server(options_for(address)) {
    thread = std::thread([this] { server.run(*pages, [this] { return stop.load(); }, {}); });
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() {
    stop = true;
    thread.join();
  }

  std::unique_ptr<HttpHandler> pages;
  HttpServer server;
  std::atomic<bool> stop = false;
  std::thread thread;
};

MetricsServer::MetricsServer(const std::string& address, const MetricsPage& page)
    : parts_(std::make_unique<Parts>(address, page)) {}

MetricsServer::~MetricsServer() = default;

std::string MetricsServer::url() const { return parts_->server.url() + "/metrics"; }

}  // namespace tetrad
