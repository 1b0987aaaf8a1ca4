// SPDX-License-Identifier: Apache-2.0
// A run of several ranks that does nothing but exchange, for what a fault on one of them does to the others:
// TETRAD_FAILPOINTS says which fault. The lines that it writes are looked for by ctest.

#include <array>
#include <chrono>
#include <exception>
#include <iostream>

#include "tetrad/parallel/launch.h"
#include "tetrad/parallel/watchdog.h"

namespace tetrad {
namespace {

void exchange_for_a_while(Communicator& ranks) {
  constexpr int kRounds = 20;
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<std::array<std::byte, 100>> sent(size);
  std::vector<std::array<std::byte, 100>> received(size);
  Exchange exchange;
  exchange.send.assign(sent.begin(), sent.end());
  exchange.receive.assign(received.begin(), received.end());
  for (int round = 0; round < kRounds; ++round) ranks.exchange(exchange);
  ranks.barrier();
}

int run() {
  const std::unique_ptr<Communicator> world = make_world();
  const Watchdog watchdog(
      {.rank = world->rank(), .host = host_name(), .time_out = std::chrono::milliseconds(500)},
      [&] { return world->pending(); }, [&](const std::string& message) { world->abort(message); });
  try {
    exchange_for_a_while(*world);
  } catch (const std::exception& error) {
    world->abort(error.what());
  }
  if (world->rank() == 0) std::cout << "all went well\n";
  return 0;
}

}  // namespace
}  // namespace tetrad

int main() {
  try {
    return tetrad::run();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
