// SPDX-License-Identifier: Apache-2.0
#pragma once
// One connection of a server: requests are read, answered and logged, one after the other.

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "tetrad/http/handler.h"
#include "tetrad/http/socket.h"

namespace tetrad {

/// What holds for all connections of a server.
struct ConnectionOptions {
  HttpLimits limits = {};
  std::chrono::milliseconds request_timeout{30'000};  //!< from the first byte of a request to its last
  std::chrono::milliseconds idle_timeout{60'000};     //!< between requests of a connection
  /// How long a client may let an answer wait in all, beside a second for every 64 kB of it.
  std::chrono::milliseconds send_timeout{30'000};
  std::size_t memory = std::size_t{1} << 30;  //!< bytes that all requests together may take
  /// Names of this server that a Host header may have, besides localhost and addresses in numbers; "*": all.
  std::vector<std::string> allowed_hosts = {};
  /// Where other machines are let in, any name will do, also if it is not in the list.
  bool any_name_from_outside = true;
};

namespace http {

/// What a connection takes while it reads the head of a request.
inline constexpr std::size_t kConnectionBytes = 32768;

class Connection {
 public:
  /// What connections share.
  struct Common {
    const ConnectionOptions& options;
    HttpHandler& handler;
    MemoryBudget& memory;
    const std::atomic<bool>& stopping;
    bool is_loopback;  //!< only this machine can connect
  };

  /// Since when it waits for a request; 0: it has one.
  using IdleSince = std::atomic<Clock::rep>;

  /// All arguments must outlive it.
  Connection(const Common& common, int socket, const std::string& peer, IdleSince& idle_since)
      : common_(common), options_(common.options), socket_(socket), peer_(peer), idle_since_(idle_since) {}

  /// Until it ends.
  void serve();
  /// Answers that error, whatever was asked.
  void refuse(const HttpError& error);

 private:
  class Sender;

  bool serve_one();
  bool receive(RequestParser& parser, MemoryShare& memory);
  void check_host(const HttpRequest& request) const;
  HttpResponse answer(const HttpRequest& request, const HttpExchange& exchange) const;
  static bool send_response(Sender& sender, bool with_body, const HttpResponse& response, bool keep_alive);
  bool send_stream(Sender& sender, const HttpRequest& request, HttpResponse& response, bool keep_alive) const;
  void log(const HttpRecord& record) const;

  Common common_;
  const ConnectionOptions& options_;
  int socket_;
  const std::string& peer_;
  IdleSince& idle_since_;
  std::string buffer_;               //!< bytes that belong to the next request
  std::size_t memory_per_byte_ = 1;  //!< of the body of this request
};

}  // namespace http
}  // namespace tetrad
