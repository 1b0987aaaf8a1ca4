// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "backend_choice.h"
#include "terminal.h"
#include "tetrad/core/threads.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/parallel/launch.h"
#include "tetrad/parallel/mesh.h"
#include "tetrad/train/run_ranks.h"

namespace tetrad::app {

ExitCode on_all_ranks(const std::function<ExitCode(World&)>& work) {
  World world{nullptr, make_world(), nullptr};
  world.watch = watch_ranks(*world.ranks, {});
  if (!world.is_first()) silence_terminal();
  try {
    return work(world);
  } catch (const SharedError& error) {
    if (world.is_first()) throw;
    return error.exit_code();
  } catch (const std::exception& error) {  // this rank's alone: the others would wait for it for ever
    if (world.ranks && world.ranks->size() > 1) world.ranks->abort(error.what());
    throw;
  }
}

void open_backend(World& world, const RunConfig& how) {
  Communicator& ranks = *world.ranks;
  const std::vector<std::string> hosts = ranks.share(host_name());
  const NodePlace place = place_of(ranks.rank(), hosts);
  BackendOptions options{.threads = static_cast<int>(how.threads),
                         .device = devices_are_shared() ? 0 : place.local_rank};
  if (options.threads == 0 && place.local_size > 1)
    options.threads = std::max(1, default_thread_count() / place.local_size);
  together(ranks, [&] {
    world.backend = how.selftest == "off" ? choose_backend(how.backend, options)
                                          : choose_tested_backend(how.backend, options);
  });
  refuse_shared_devices(ranks, world.backend->device_id());
  const std::string first = from_first(ranks, std::string(world.backend->name()));
  together(ranks, [&] {
    TETRAD_CHECK(world.backend->name() == first,
                 "this rank has the backend {}, and the first has {}: say which with --backend",
                 world.backend->name(), first);
  });
  world.watch.reset();
  world.ranks = make_communicator(std::move(world.ranks), *world.backend, wanted_transport());
}

}  // namespace tetrad::app
