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
#include <thread>

#include "tetrad/http/address.h"
#include "tetrad/http/connection.h"
#include "tetrad/http/handler.h"
#include "tetrad/http/socket.h"

namespace tetrad {

struct ServerOptions : ConnectionOptions {
  HttpAddress address;
  int connections = 64;  //!< at a time; more are answered 503
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
  bool is_loopback() const { return listener_.is_loopback; }  //!< only this machine can connect
  const MemoryBudget& memory() const { return memory_; }

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
  /// Of a connection.
  struct Place {
    FileDescriptor socket;  //!< closed by the thread that runs, so that it may always be shut down
    std::string peer;
    bool is_welcome = false;  //!< else it is answered 503: too many connections
    bool is_taken = false;    //!< it counts among those that are served; used by the thread in run()
    http::Connection::IdleSince idle_since = 0;
    std::atomic<bool> done = false;
    std::thread thread;
  };

  void accept_one();
  void reap();
  bool drain(std::chrono::milliseconds limit);
  void cut_off();
  bool find_room();
  void serve(Place& place);

  ServerOptions options_;
  http::Listener listener_;
  MemoryBudget memory_;
  HttpHandler* handler_ = nullptr;
  std::atomic<bool> stopping_ = false;
  std::list<Place> places_;  //!< used only by the thread in run()
};

}  // namespace tetrad
