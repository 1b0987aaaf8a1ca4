// SPDX-License-Identifier: Apache-2.0
#include "contexts.h"

#include <pthread.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace tetrad::python {
namespace {

std::atomic<std::int32_t> default_threads = 0;

/// Contexts that nobody uses. They are never destroyed: at the end of a process devices may be gone before
/// us.
struct Pool {
  std::mutex mutex;
  std::map<Place, std::vector<tetrad_context*>> free;
};

Pool& pool() {
  static auto* const instance = [] {
    auto* made = new Pool;
    // A forked process finds the lock open; its contexts start threads of their own.
    pthread_atfork([] { pool().mutex.lock(); }, [] { pool().mutex.unlock(); }, [] { pool().mutex.unlock(); });
    return made;
  }();
  return *instance;
}

template <typename Value>
struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<std::int64_t, Value> values;

  void add(std::int64_t id, const Value& value) {
    const std::unique_lock lock(mutex);
    values.insert_or_assign(id, value);
  }
  const Value& at(std::int64_t id, const char* what) {
    const std::shared_lock lock(mutex);
    const auto found = values.find(id);
    if (found == values.end())
      throw std::runtime_error("tetrad: this process has not made the " + std::string(what) +
                               " of this operation: make it (tetrad.Recipe, tetrad.Quantizer) before you run "
                               "what was compiled with it");
    return found->second;  // elements of an unordered_map stay where they are
  }
};

Registry<const tetrad_precision*>& precisions() {
  static auto* const instance = new Registry<const tetrad_precision*>;
  return *instance;
}
Registry<tetrad_quantizer>& quantizers() {
  static auto* const instance = new Registry<tetrad_quantizer>;
  return *instance;
}

tetrad_context* make_context(const Place& place) {
  tetrad_context* context = nullptr;
  if (place.device < 0) {
    const tetrad_cpu_options options = {sizeof(options), place.threads, nullptr};
    check(tetrad_cpu_context(&options, &context));
  } else {
    const tetrad_cuda_options options = {sizeof(options), place.device, place.stream};
    check(tetrad_cuda_context(&options, &context));
  }
  return context;
}

}  // namespace

Context::Context(const Place& place) : place_(place) {
  if (place_.device < 0 && place_.threads == 0) place_.threads = default_threads.load();
  {
    const std::lock_guard lock(pool().mutex);
    std::vector<tetrad_context*>& free = pool().free[place_];
    if (!free.empty()) {
      context_ = free.back();
      free.pop_back();
    }
  }
  if (context_ == nullptr) context_ = make_context(place_);
}

Context::~Context() {
  const std::lock_guard lock(pool().mutex);
  pool().free[place_].push_back(context_);
}

const tetrad_precision* precision_of(std::int64_t id) { return precisions().at(id, "recipe"); }
const tetrad_quantizer* quantizer_of(std::int64_t id) { return &quantizers().at(id, "quantizer"); }

}  // namespace tetrad::python

tetrad_status tetrad_python_announce_precision(int64_t id, const tetrad_precision* precision) {
  tetrad::python::precisions().add(id, precision);
  return TETRAD_OK;
}
tetrad_status tetrad_python_announce_quantizer(int64_t id, const tetrad_quantizer* quantizer) {
  tetrad::python::quantizers().add(id, *quantizer);
  return TETRAD_OK;
}
void tetrad_python_set_threads(int32_t threads) { tetrad::python::default_threads = threads; }
