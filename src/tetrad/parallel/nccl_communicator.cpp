// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/nccl_communicator.h"

#include <nccl.h>

#include <chrono>
#include <deque>
#include <exception>
#include <thread>

#include "tetrad/backend/cuda/common/current_device.h"
#include "tetrad/core/error.h"

namespace tetrad {
namespace {

class Event {
 public:
  Event() { cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, Backend& backend)
      : host_(std::move(host)),
        backend_(backend),
        backend_stream_(static_cast<cudaStream_t>(backend.stream())) {
    cuda::check(cudaStreamGetDevice(backend_stream_, &device_));
    const cuda::CurrentDevice current(device_);
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    before_.emplace();
    ncclUniqueId id = {};
    if (rank() == 0) check(ncclGetUniqueId(&id), "an id for all ranks");
    host_->broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // so that a rank that does not answer can be noticed
    settle(ncclCommInitRankConfig(&communicator_, size(), id, rank(), &config), "start");
  }

  /// After an error nothing is waited for: other ranks may be gone.
  ~NcclCommunicator() override {
    const cuda::CurrentDevice current(device_, std::nothrow);
    if (std::uncaught_exceptions() > exceptions_) {
      ncclCommAbort(communicator_);
    } else {
      ncclResult_t state = ncclCommFinalize(communicator_);
      while (state == ncclInProgress && ncclCommGetAsyncError(communicator_, &state) == ncclSuccess)
        std::this_thread::yield();
      ncclCommDestroy(communicator_);
    }
    cudaStreamDestroy(stream_);
  }

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  /// The kernels that still wait for others end with their processes; ncclCommAbort() would wait for them.
  void end_others() override { host_->end_others(); }
  std::unique_ptr<Communicator> among(std::span<const int> ranks) override {
    return std::make_unique<NcclCommunicator>(host_->among(ranks), backend_);
  }

  std::unique_ptr<Messages> messages() override { return host_->messages(); }
  void tell(CollectiveListener* listener) override {
    const cuda::CurrentDevice current(device_);
    cuda::check(cudaStreamSynchronize(stream_));  // which may still tell the one before
    Communicator::tell(listener);
  }

  std::optional<CollectiveCall> pending() override {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(communicator_, &state), "state");
    if (state != ncclInProgress) check(state, "noticed by NCCL");
    if (const std::optional<CollectiveCall> call = Communicator::pending()) return call;
    const cuda::CurrentDevice current(device_);
    const std::lock_guard lock(mutex_);
    forget_finished();
    return running_.empty() ? std::nullopt : std::optional(running_.front().call);
  }

 protected:
  bool tells_itself() const override { return true; }

  void begin(std::uint64_t number, std::span<const Exchange> exchanges) override {
    run({Collective::exchange, number}, [&] {
      for (const auto& [send, receive] : exchanges) {
        for (std::size_t other = 0; other < send.size(); ++other)
          move(static_cast<int>(other), send[other], receive[other]);
      }
    });
  }

  void begin(std::uint64_t number, std::span<const Gather> gathers) override {
    run({Collective::gather, number}, [&] {
      for (const auto& [send, receive] : gathers)
        for (std::size_t other = 0; other < receive.size(); ++other)
          move(static_cast<int>(other), send, receive[other]);
    });
  }

  void begin(std::uint64_t number, std::span<std::uint32_t> values) override {
    run({Collective::max_u32, number}, [&] {
      check_started(ncclAllReduce(values.data(), values.data(), values.size(), ncclUint32, ncclMax,
                                  communicator_, stream_));
    });
  }

  void finish(std::uint64_t number) override {
    const cuda::CurrentDevice current(device_);
    const std::lock_guard lock(mutex_);
    const Running* last = nullptr;
    for (const Running& each : running_)
      if (each.call.number <= number) last = &each;
    if (last != nullptr) cuda::check(cudaStreamWaitEvent(backend_stream_, last->finished));
  }

  std::vector<std::string> share_now(const std::string& own) override { return host_->share(own); }
  void broadcast_now(std::span<std::byte> memory, int root) override { host_->broadcast(memory, root); }
  void barrier_now() override { host_->barrier(); }

 private:
  struct Running {
    CollectiveCall call;
    Event finished;
  };

  void check(ncclResult_t result, std::string_view what) const {
    if (result == ncclSuccess) return;
    const char* const detail = communicator_ == nullptr ? "" : ncclGetLastError(communicator_);
    throw Error(fmt::format("rank {} of {}: NCCL: {}: {}. {}", rank(), size(), what,
                            ncclGetErrorString(result), detail),
                ExitCode::failure);
  }
  /// Of a call that may still be under way.
  void check_started(ncclResult_t result) const {
    if (result != ncclInProgress) check(result, "collective");
  }
  /// Waits until the call has reached the device; not for what the device then does.
  void settle(ncclResult_t result, std::string_view what) const {
    while (result == ncclInProgress) {
      std::this_thread::yield();
      check(ncclCommGetAsyncError(communicator_, &result), what);
    }
    check(result, what);
  }

  /// What `body` puts on this stream: after all that is on the backend's now.
  template <typename Body>
  void run(const CollectiveCall& call, const Body& body) {
    const cuda::CurrentDevice current(device_);
    cuda::check(cudaEventRecord(*before_, backend_stream_));
    cuda::check(cudaStreamWaitEvent(stream_, *before_));
    tell_from_stream(call, &CollectiveListener::began);
    check(ncclGroupStart(), name_of(call.collective));
    body();
    settle(ncclGroupEnd(), name_of(call.collective));
    tell_from_stream(call, &CollectiveListener::ended);
    const std::lock_guard lock(mutex_);
    forget_finished();
    running_.push_back({call, Event()});
    cuda::check(cudaEventRecord(running_.back().finished, stream_));
  }

  /// When the stream gets there.
  void tell_from_stream(const CollectiveCall& call,
                        void (CollectiveListener::*what)(const CollectiveCall&)) const {
    if (listener() == nullptr) return;
    struct Told {
      CollectiveListener& listener;
      CollectiveCall call;
      void (CollectiveListener::*what)(const CollectiveCall&);
    };
    auto told = std::make_unique<Told>(*listener(), call, what);
    cuda::check(cudaLaunchHostFunc(
        stream_,
        [](void* memory) {
          const std::unique_ptr<Told> now(static_cast<Told*>(memory));
          (now->listener.*now->what)(now->call);
        },
        told.get()));
    static_cast<void>(told.release());  // NOLINT(bugprone-unused-return-value): the stream frees it
  }

  /// One message each way; empty ones are none.
  void move(int other, std::span<const std::byte> send, std::span<std::byte> receive) {
    if (other == rank()) {
      if (!send.empty() && send.data() != receive.data())
        cuda::check(
            cudaMemcpyAsync(receive.data(), send.data(), send.size(), cudaMemcpyDeviceToDevice, stream_));
      return;
    }
    if (!send.empty())
      check_started(ncclSend(send.data(), send.size(), ncclInt8, other, communicator_, stream_));
    if (!receive.empty())
      check_started(ncclRecv(receive.data(), receive.size(), ncclInt8, other, communicator_, stream_));
  }

  /// With the mutex held.
  void forget_finished() {
    while (!running_.empty()) {
      const cudaError_t state = cudaEventQuery(running_.front().finished);
      if (state == cudaErrorNotReady) return;
      cuda::check(state);
      running_.pop_front();
    }
  }

  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<Communicator> host_;
  Backend& backend_;
  cudaStream_t backend_stream_;
  cudaStream_t stream_ = nullptr;
  int device_ = 0;
  ncclComm_t communicator_ = nullptr;
  std::optional<Event> before_;
  std::mutex mutex_;
  std::deque<Running> running_;  //!< in order; a watchdog looks at them too
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, Backend& backend) {
  TETRAD_CHECK(backend.stream() != nullptr, "NCCL moves memory of CUDA devices, not of {}", backend.name());
  return std::make_unique<NcclCommunicator>(std::move(host), backend);
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "of an unknown version";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace tetrad
