// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes from one rank to another in the program's memory, beside all collectives, from any thread.

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>

namespace tetrad {

class Messages {
 public:
  Messages() = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  virtual ~Messages() = default;

  /// Messages of a channel, from one rank to one, arrive in the order in which they were sent. At most 2 GiB.
  /// May wait until somebody receives it.
  virtual void send(int to, int channel, std::span<const std::byte> bytes) = 0;
  /// Waits for a message of this length, if nothing else is said for ever. False if there was none in time.
  virtual bool receive(int from, int channel, std::span<std::byte> bytes,
                       std::optional<std::chrono::milliseconds> patience = std::nullopt) = 0;
};

}  // namespace tetrad
