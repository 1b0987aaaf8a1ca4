// SPDX-License-Identifier: Apache-2.0
#pragma once
// A small HTTP/1.1 server: one thread per connection and a bound on connections, deadlines for everything
// that a client does, and an answer to everything that it sends. What is said is the handler's business.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tetrad/http/address.h"
#include "tetrad/http/request.h"
#include "tetrad/http/socket.h"

namespace tetrad {

/// Sends a piece of a body; throws if the client is gone, which is to be let through.
using BodyWriter = std::function<void(std::string_view piece)>;

struct HttpResponse {
  int status = 200;
  std::string content_type = {};
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  //!< besides those of every response
  std::string note = {};                                          //!< for the log
  /// Instead of a body: makes it while it is sent, and returns the note. Until it has written something, it
  /// may throw like a handler.
  std::function<std::string(const BodyWriter& write)> stream = {};
};

struct ServerOptions {
  HttpAddress address;
  int connections = 64;  //!< at a time; more are answered 503
  HttpLimits limits = {};
  std::chrono::milliseconds request_timeout{30'000};  //!< from the first byte of a request to its last
  std::chrono::milliseconds idle_timeout{60'000};     //!< between requests of a connection
};

/// Whether the client no longer waits for the answer.
using IsGone = std::function<bool()>;

/// All of it is called by several threads at once.
class HttpHandler {
 public:
  HttpHandler() = default;
  HttpHandler(const HttpHandler&) = delete;
  HttpHandler& operator=(const HttpHandler&) = delete;
  virtual ~HttpHandler() = default;

  /// HEAD comes as GET. What it throws is answered: HttpError as it says, anything else with 500.
  virtual HttpResponse answer(const HttpRequest& request, const IsGone& is_gone) = 0;
  /// The response that says what is wrong.
  virtual HttpResponse describe(const HttpError& error) const = 0;
  /// Takes one line per request, without a line feed.
  virtual void log(const std::string& /*line*/) {}
};

class HttpServer {
 public:
  /// Listens; whoever comes waits for run(). Throws Error (bad input) if it cannot.
  explicit HttpServer(ServerOptions options);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer() = default;

  std::uint16_t port() const { return listener_.port; }
  std::string url() const;

  /// What becomes of requests under way when the server stops.
  struct Ending {
    std::chrono::milliseconds grace{0};  //!< in which they may come to their end
    std::function<void()> give_up =
        {};  //!< then called, if it is not empty: they are to end with an error now
  };

  /// Answers until `stop` says so; it is asked ten times a second. Then no connection is accepted any more,
  /// connections end with the request that they are at, and what is left after the ending is cut off: when
  /// run() returns, the handler is no longer used. To be called once.
  void run(HttpHandler& handler, const std::function<bool()>& stop, const Ending& ending);

 private:
  struct Connection {
    FileDescriptor socket;  //!< closed by the thread that runs, so that it may always be shut down
    std::string peer;
    bool is_welcome = false;  //!< else it is answered 503: too many connections
    std::atomic<bool> done = false;
    std::thread thread;
  };

  void accept_one();
  void reap();
  bool drain(std::chrono::milliseconds limit);
  void cut_off();
  void serve(Connection& connection);
  void refuse(Connection& connection);
  bool serve_one(Connection& connection, std::string& buffer);
  bool receive(int socket, RequestParser& parser, std::string& buffer);
  HttpResponse answer(const HttpRequest& request, int socket) const;
  void check_host(const HttpRequest& request) const;
  /// False if the client did not take it.
  bool send_response(int socket, const HttpRequest* request, HttpResponse& response, bool keep_alive) const;
  bool send_stream(int socket, const HttpRequest& request, HttpResponse& response, bool keep_alive) const;
  void log(const std::string& line) const;

  ServerOptions options_;
  http::Listener listener_;
  HttpHandler* handler_ = nullptr;
  std::atomic<bool> stopping_ = false;
  std::list<Connection> connections_;  //!< used only by the thread in run()
};

}  // namespace tetrad
