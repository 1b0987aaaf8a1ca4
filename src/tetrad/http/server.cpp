// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace tetrad {
namespace {

using http::Clock;
using http::kTick;
using std::chrono::milliseconds;

/// Every connection can read a head and answer that there is no room for more.
std::size_t set_aside(const ServerOptions& options) {
  const std::size_t bytes = static_cast<std::size_t>(options.connections) * http::kConnectionBytes;
  TETRAD_CHECK(bytes < options.memory,
               "a memory budget of {} bytes is too small for {} connections, which take {} bytes before they "
               "ask for anything: allow more memory or fewer connections",
               options.memory, options.connections, bytes);
  return bytes;
}

}  // namespace

HttpServer::HttpServer(ServerOptions options)
    : options_(std::move(options)),
      listener_(http::listen_on(options_.address)),
      memory_(options_.memory, set_aside(options_)) {}

std::string HttpServer::url() const {
  const std::string& host = options_.address.host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("http://[{}]:{}", host, port()) : fmt::format("http://{}:{}", host, port());
}

void HttpServer::run(HttpHandler& handler, const std::function<bool()>& stop, const Ending& ending) {
  struct AtTheEnd {
    HttpServer& server;
    ~AtTheEnd() { server.cut_off(); }
  } const at_the_end{*this};
  handler_ = &handler;
  const int listener = listener_.socket.get();
  while (!stop()) {
    reap();
    if (http::wait_for(listener, POLLIN, Clock::now() + kTick)) accept_one();
  }
  // Whoever came before the signal is answered.
  for (int i = 0; i < http::kWaiting && http::wait_for(listener, POLLIN, Clock::now()); ++i) accept_one();
  stopping_ = true;
  { const FileDescriptor closed = std::move(listener_.socket); }
  if (drain(ending.grace) || !ending.give_up) return;
  constexpr milliseconds kLastWords{1000};
  ending.give_up();
  drain(kLastWords);
}

void HttpServer::cut_off() {
  stopping_ = true;
  for (Place& place : places_) {
    ::shutdown(place.socket.get(), SHUT_RDWR);
    place.thread.join();
  }
  places_.clear();
}

/// Waits until no connection is left; false if that takes longer.
bool HttpServer::drain(milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (reap(); !places_.empty(); reap()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

void HttpServer::reap() {
  places_.remove_if([](Place& place) {
    const bool is_done = place.done;
    if (is_done) place.thread.join();
    return is_done;
  });
}

/// Whether another connection can be served. If need be, the one that has asked for nothing for longest ends.
bool HttpServer::find_room() {
  constexpr std::chrono::seconds kLongEnough{1};  // whoever has just come gets to ask
  if (std::ranges::count_if(places_, &Place::is_taken) < options_.connections) return true;
  Place* idle = nullptr;
  Clock::rep oldest = (Clock::now() - kLongEnough).time_since_epoch().count();
  for (Place& place : places_) {
    const Clock::rep since = place.idle_since;
    if (!place.is_taken || since == 0 || since > oldest) continue;
    oldest = since;
    idle = &place;
  }
  if (idle == nullptr) return false;
  idle->is_taken = false;
  ::shutdown(idle->socket.get(), SHUT_RD);  // which it sees as its client's leaving
  return true;
}

void HttpServer::accept_one() {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  FileDescriptor socket(
      ::accept4(listener_.socket.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC));
  if (!socket.is_open()) {
    // Too many open files: the connection stays in the queue, and asking again at once would be of no use.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) std::this_thread::sleep_for(kTick);
    return;
  }
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  reap();
  // Some more than are served, so that those too many hear of it; what comes beyond them is closed at once.
  constexpr std::size_t kRefused = 16;
  const auto allowed = static_cast<std::size_t>(options_.connections);
  if (places_.size() >= allowed + kRefused) return;
  const bool has_room = find_room();
  Place& place = places_.emplace_back();
  place.is_welcome = place.is_taken = has_room;
  place.socket = std::move(socket);
  place.peer = http::peer_name(address, size);
  try {
    place.thread = std::thread([this, &place] { serve(place); });
  } catch (const std::system_error&) {
    places_.pop_back();
  }
}

void HttpServer::serve(Place& place) {
  const int socket = place.socket.get();
  http::Connection connection({options_, *handler_, memory_, stopping_, listener_.is_loopback}, socket,
                              place.peer, place.idle_since);
  if (place.is_welcome)
    connection.serve();
  else
    connection.refuse(
        HttpError(503, fmt::format("all {} connections are taken; try again later", options_.connections)));
  ::shutdown(socket, SHUT_RDWR);
  place.done = true;
}

}  // namespace tetrad
