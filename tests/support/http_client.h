// SPDX-License-Identifier: Apache-2.0
#pragma once
// A client that can also misbehave.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tetrad::testing {

struct HttpAnswer {
  int status = 0;
  std::string head;
  std::string body;

  nlohmann::json json() const { return nlohmann::json::parse(body); }
  /// The message of an error object; empty if it is none.
  std::string error() const {
    const nlohmann::json parsed = nlohmann::json::parse(body, nullptr, false);
    if (!parsed.is_object() || !parsed.contains("error")) return {};
    return parsed["error"]["message"].get<std::string>();
  }
};

class HttpClient {
 public:
  /// `window`: bytes that it lets wait for it, if that is not left to the system.
  explicit HttpClient(std::uint16_t port, int window = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (window > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &window, sizeof(window));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient() { ::close(socket_); }

  bool is_connected() const { return is_connected_; }

  /// False if the server has closed the connection.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  /// No more is sent, but the answer is still waited for.
  void shut_down_sending() const { ::shutdown(socket_, SHUT_WR); }

  /// The next response; nothing if the connection ends or ten seconds pass before it is complete. A body in
  /// chunks is put together.
  std::optional<HttpAnswer> receive() {
    HttpAnswer answer;
    while (true) {
      const std::size_t end = received_.find("\r\n\r\n");
      if (end != std::string::npos) {
        answer.head = received_.substr(0, end + 2);
        if (answer.head.find("Transfer-Encoding: chunked\r\n") != std::string::npos) {
          answer.status = std::stoi(answer.head.substr(9, 3));
          received_.erase(0, end + 4);
          return receive_chunks(answer);
        }
        constexpr std::string_view kLength = "Content-Length: ";
        const std::size_t at = answer.head.find(kLength);
        const std::size_t length =
            at == std::string::npos ? 0 : std::stoul(answer.head.substr(at + kLength.size()));
        if (received_.size() >= end + 4 + length) {
          answer.status = std::stoi(answer.head.substr(9, 3));
          answer.body = received_.substr(end + 4, length);
          received_.erase(0, end + 4 + length);
          return answer;
        }
      }
      if (!receive_some()) return std::nullopt;
    }
  }

  /// What has come and was not taken for a response.
  const std::string& received() const { return received_; }
  /// Waits for more, at most ten seconds; false if nothing comes.
  bool receive_some(std::size_t at_most = 65536) {
    pollfd entry{socket_, POLLIN, 0};
    if (::poll(&entry, 1, 10'000) <= 0) return false;
    char bytes[65536];
    const ssize_t count = ::recv(socket_, bytes, std::min(at_most, sizeof(bytes)), 0);
    ended_ = count <= 0;
    if (count > 0) received_.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
  }
  bool has_something() const {
    pollfd entry{socket_, POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }

  /// Whether the server closes the connection within ten seconds.
  bool is_closed_by_server() {
    while (receive_some()) continue;
    return ended_;
  }

  HttpAnswer ask(std::string_view bytes) {
    send(bytes);
    const std::optional<HttpAnswer> answer = receive();
    if (!answer) throw std::runtime_error("no answer");
    return *answer;
  }
  HttpAnswer get(const std::string& path) {
    return ask("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  HttpAnswer post(const std::string& path, const std::string& body) { return ask(post_request(path, body)); }

  static std::string post_request(const std::string& path, const std::string& body) {
    return "POST " + path +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }

 private:
  std::optional<HttpAnswer> receive_chunks(HttpAnswer answer) {
    while (true) {
      const std::size_t end = received_.find("\r\n");
      const std::size_t size = end == std::string::npos ? 0 : std::stoul(received_, nullptr, 16);
      if (end == std::string::npos || received_.size() < end + 2 + size + 2) {
        if (!receive_some()) return std::nullopt;
        continue;
      }
      if (received_.substr(end + 2 + size, 2) != "\r\n") throw std::runtime_error("a chunk does not end");
      answer.body += received_.substr(end + 2, size);
      received_.erase(0, end + 2 + size + 2);
      if (size == 0) return answer;
    }
  }

  int socket_;
  bool is_connected_ = false;
  bool ended_ = false;
  std::string received_;
};

}  // namespace tetrad::testing
