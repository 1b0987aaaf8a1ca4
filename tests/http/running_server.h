// SPDX-License-Identifier: Apache-2.0
#pragma once
// A server over real sockets, with a handler that does what the path says.

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "support/http_client.h"
#include "tetrad/http/server.h"

namespace tetrad::testing {

using std::chrono::milliseconds;

/// Whether it is so, now or within ten seconds.
inline bool comes(const std::function<bool()>& condition) {
  for (int i = 0; i < 10'000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return condition();
}

/// Counts what happens, so that a test can wait for it.
class Events {
 public:
  void add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    events_.insert(what);
    changed_.notify_all();
  }
  std::size_t count(const std::string& what) const {
    const std::lock_guard lock(mutex_);
    return events_.count(what);
  }
  /// Whether it happened so many times, now or within ten seconds.
  bool happens(const std::string& what, std::size_t times = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return events_.count(what) >= times; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::multiset<std::string> events_;
};

class Handler final : public HttpHandler {
 public:
  std::size_t admit(const HttpRequest& head) override {
    if (head.path == "/forbidden") throw HttpError(401, "not you");
    return head.path == "/costly" ? 10 : 1;
  }
  HttpResponse answer(const HttpRequest& request, const HttpExchange& exchange) override {
    if (request.path == "/bad") throw HttpError(415, "that is bad");
    if (request.path == "/broken") throw std::runtime_error("thrown on purpose");
    if (request.path == "/full") throw std::bad_alloc();
    if (request.path == "/wait") wait(exchange.is_gone);
    if (request.path == "/large") return text(200, std::string(std::size_t{64} << 20, 'x'));
    if (request.path == "/hungry") exchange.memory.add(std::stoul(request.body));
    if (request.path.starts_with("/stream")) return stream(request.path);
    return text(200, request.method + " " + request.path + " " + request.body);
  }
  HttpResponse describe(const HttpError& error) const override { return text(error.status(), error.what()); }
  void log(const HttpRecord& record) override {
    const std::string line = text_line(record);
    lines.add(line.substr(line.find(' ') + 1, line.find(" bytes") - line.find(' ') - 1));
    throw std::runtime_error("the log is full");
  }

  Events events;
  Events lines;
  std::atomic<bool> is_released = false;
  std::atomic<bool> gives_up = false;

 private:
  static HttpResponse text(int status, std::string body) {
    HttpResponse response;
    response.status = status;
    response.content_type = "text/plain";
    response.body = std::move(body);
    return response;
  }
  void wait(const IsGone& is_gone) {
    events.add("waits");
    while (!is_released) {
      if (gives_up) throw HttpError(503, "given up");
      if (is_gone()) {
        events.add("is gone");
        throw HttpError(499, "gone");
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  HttpResponse stream(const std::string& path) {
    HttpResponse response = text(200, "");
    response.stream = [this, path](const BodyWriter& write) {
      if (path == "/stream/bad") throw HttpError(400, "before anything was sent");
      write("one");
      write("");
      write(std::string(100000, 'x'));
      if (path == "/stream/broken") throw std::runtime_error("in the middle");
      try {
        while (path == "/stream/endless") write("more");
        while (path == "/stream/flood") write(std::string(4096, 'x'));
      } catch (...) {
        events.add("stream ends");
        throw;
      }
      return HttpNote{"note"};
    };
    return response;
  }
};

class Running {
 public:
  explicit Running(ServerOptions options = {}, HttpServer::Ending ending = {})
      : server_(std::move(options)), ending_(std::move(ending)) {
    thread_ = std::thread([this] {
      server_.run(
          handler, [this] { return stop_.load(); }, ending_);
    });
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { stop(); }

  void ask_to_stop() { stop_ = true; }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::uint16_t port() const { return server_.port(); }
  const MemoryBudget& memory() const { return server_.memory(); }
  HttpAnswer ask(const std::string& bytes) const { return HttpClient(port()).ask(bytes); }
  HttpAnswer get(const std::string& path) const { return HttpClient(port()).get(path); }

  Handler handler;

 private:
  HttpServer server_;
  HttpServer::Ending ending_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace tetrad::testing
