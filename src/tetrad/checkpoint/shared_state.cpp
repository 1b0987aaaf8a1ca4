// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/shared_state.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "tetrad/core/buffer.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {
namespace {

constexpr int kRequests = 0;      // the channel to other ranks; their replies to thread t take channel
constexpr int kFirstReplies = 1;  // kFirstReplies + t

}  // namespace

/// Of a rank, from rank 0. Size 0: there will be no more.
struct SharedState::Request {
  std::uint64_t number;
  std::uint64_t thread;
  std::uint64_t tensor;
  std::uint64_t offset;  //!< within the rank's part
  std::uint64_t size;
};

/// Before the bytes, of which there are none after an error.
struct SharedState::Reply {
  std::uint64_t number = 0;
  std::uint64_t size = 0;
  std::array<char, 240> error = {};
};

class SharedState::Reader final : public MemoryReader {
 public:
  Reader(SharedState& state, int thread)
      : state_(state), thread_(thread), own_(state.backend_.make_reader()), copy_(kMostBytes) {}

  std::span<const std::byte> read(std::span<const std::byte> memory) override {
    std::size_t at = static_cast<std::size_t>(memory.data() - state_.addresses_.data());
    const auto tensor =
        static_cast<std::size_t>(std::ranges::upper_bound(state_.ends_, at) - state_.ends_.begin());
    at -= state_.ends_[tensor] - state_.size_of(tensor);
    const std::vector<std::size_t>& ends = state_.tensors_[tensor].ends;
    std::span<std::byte> free = copy_.span<std::byte>().first(memory.size());
    for (std::size_t rank = 0; rank < ends.size() && !free.empty(); ++rank) {
      if (at >= ends[rank]) continue;
      const std::size_t begin = rank == 0 ? 0 : ends[rank - 1];
      const std::size_t size = std::min(ends[rank] - at, free.size());
      if (rank == 0) {
        const std::span<const std::byte> read = own_->read(state_.tensors_[tensor].own.subspan(at, size));
        if (size == memory.size()) return read;
        std::ranges::copy(read, free.begin());
      } else {
        ask(static_cast<int>(rank), tensor, at - begin, free.first(size));
      }
      at += size;
      free = free.subspan(size);
    }
    return copy_.span<const std::byte>().first(memory.size());
  }

 private:
  void ask(int rank, std::size_t tensor, std::size_t offset, std::span<std::byte> out) const {
    const Request request{state_.place_.number, static_cast<std::uint64_t>(thread_), tensor, offset,
                          out.size()};
    state_.messages_.send(rank, kRequests, std::as_bytes(std::span(&request, 1)));
    const Reply reply = next_reply(rank);
    if (reply.size == 0) fail("rank {}: {}", rank, reply.error.data());
    receive(rank, out);
  }

  Reply next_reply(int rank) const {
    while (true) {
      Reply reply;
      receive(rank, std::as_writable_bytes(std::span(&reply, 1)));
      if (reply.number == state_.place_.number) return reply;
      // What was waited for in vain when an earlier checkpoint was written.
      Buffer late(reply.size);
      if (reply.size > 0) receive(rank, late.span<std::byte>());
    }
  }

  void receive(int rank, std::span<std::byte> bytes) const {
    const std::chrono::milliseconds patience = state_.place_.patience;
    if (!state_.messages_.receive(rank, kFirstReplies + thread_, bytes, patience))
      fail("rank {} has not sent its part for {:.0f} s", rank,
           std::chrono::duration<double>(patience).count());
  }

  SharedState& state_;
  int thread_;
  std::unique_ptr<MemoryReader> own_;
  Buffer copy_;
};

SharedState::SharedState(Backend& backend, Messages& messages, const Place& place,
                         std::vector<SharedTensor> tensors)
    : backend_(backend), messages_(messages), place_(place), tensors_(std::move(tensors)) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) ends_.push_back(bytes += size_of(i));
  if (place_.rank != 0) {
    own_reader_ = backend_.make_reader();
    try {
      if (const int code = failpoint("checkpoint.thread"); code != 0)
        throw std::system_error(code, std::generic_category());
      thread_ = std::thread([this] { answer(); });
    } catch (const std::system_error& error) {
      fail("no thread could be started for the checkpoint: {}", error.code().message());
    }
    return;
  }
  void* const first = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (first == MAP_FAILED) {
    const int code = errno;
    let_others_go();
    errno = code;
    fail_errno("addresses for the tensors of all ranks");
  }
  addresses_ = {static_cast<std::byte*>(first), bytes};
}

SharedState::~SharedState() {
  if (place_.rank != 0) {
    thread_.join();
    return;
  }
  let_others_go();
  ::munmap(addresses_.data(), addresses_.size());
}

void SharedState::let_others_go() const {
  const Request last{place_.number, 0, 0, 0, 0};
  for (int rank = 1; rank < place_.ranks; ++rank) {
    try {
      messages_.send(rank, kRequests, std::as_bytes(std::span(&last, 1)));
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the rank is gone, and so will be this one
    }
  }
}

std::span<const std::byte> SharedState::whole(std::size_t tensor) const {
  return addresses_.subspan(ends_[tensor] - size_of(tensor), size_of(tensor));
}

std::unique_ptr<MemoryReader> SharedState::make_reader(int thread) {
  return std::make_unique<Reader>(*this, thread);
}

void SharedState::answer() try {
  while (true) {
    Request request = {};
    messages_.receive(0, kRequests, std::as_writable_bytes(std::span(&request, 1)));
    if (request.number != place_.number) continue;  // the end of one that this rank could not begin
    if (request.size == 0) return;
    const int channel = kFirstReplies + static_cast<int>(request.thread);
    Reply reply{.number = place_.number};
    std::span<const std::byte> bytes;
    try {
      if (failpoint_fails("checkpoint.read")) fail_errno("cannot read a tensor");
      bytes = own_reader_->read(tensors_[request.tensor].own.subspan(request.offset, request.size));
      reply.size = bytes.size();
    } catch (const Error& error) {
      std::strncpy(reply.error.data(), error.what(), reply.error.size() - 1);
    }
    messages_.send(0, channel, std::as_bytes(std::span(&reply, 1)));
    if (reply.size > 0) messages_.send(0, channel, bytes);
  }
} catch (const Error&) {  // NOLINT(bugprone-empty-catch): rank 0 is gone, and the launcher ends this one
}

}  // namespace tetrad
