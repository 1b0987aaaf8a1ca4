#pragma once
// A small HTTP/1.1 server: one thread per connection and a bound on connections, deadlines for everything
// that a client does, and an answer to everything that it sends.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "tetrad/io/mapped_file.h"
#include "tetrad/serve/http_request.h"

namespace tetrad {

struct HttpResponse {
  int status = 200;
  std::string body;                                               //!< JSON
  std::vector<std::pair<std::string, std::string>> headers = {};  //!< besides those of every response
  std::string note = {};                                          //!< for the log
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  //!< 0: one that is free
  int connections = 64;       //!< at a time; more are answered 503
  HttpLimits limits;
  std::chrono::milliseconds request_timeout{30'000};  //!< from the first byte of a request to its last
  std::chrono::milliseconds idle_timeout{60'000};     //!< between requests of a connection
};

/// Whether the client still waits.
using IsGone = std::function<bool()>;
/// Called by several threads at once. What it throws is answered: HttpError as it says, anything else 500.
using HttpHandler = std::function<HttpResponse(const HttpRequest& request, const IsGone& is_gone)>;
/// Takes one line per request, without a line feed; also called by several threads.
using RequestLog = std::function<void(const std::string& line)>;

/// The error object of OpenAI's interface.
HttpResponse error_response(const HttpError& error);

class HttpServer {
 public:
  /// Listens. Throws Error (bad input) if it cannot.
  HttpServer(ServerOptions options, HttpHandler handler, RequestLog log);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// Waits for the requests under way.
  ~HttpServer();

  std::uint16_t port() const { return port_; }
  std::string url() const;

  /// Answers until `stop` says so; it is asked ten times a second. Then nobody is let in any more, and
  /// connections end with the request that they are at.
  void run(const std::function<bool()>& stop);

  /// Waits until no connection is left; false if that takes longer.
  bool drain(std::chrono::milliseconds limit);

 private:
  struct Connection {
    FileDescriptor socket;
    std::string peer;
    bool is_welcome = false;  //!< else it is told that there are too many
    std::atomic<bool> done = false;
    std::thread thread;
  };

  void accept_one();
  void reap();
  void serve(Connection& connection);
  void refuse(Connection& connection);
  bool serve_one(Connection& connection, std::string& buffer);
  bool receive(int socket, RequestParser& parser, std::string& buffer);
  HttpResponse answer(const HttpRequest& request, int socket) const;
  /// False if the client did not take it.
  bool send_response(int socket, const HttpResponse& response, bool keep_alive) const;

  ServerOptions options_;
  HttpHandler handler_;
  RequestLog log_;
  FileDescriptor listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::list<Connection> connections_;  //!< of the thread that runs
};

}  // namespace tetrad
