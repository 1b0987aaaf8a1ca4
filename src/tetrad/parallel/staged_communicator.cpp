// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/staged_communicator.h"

#include <deque>
#include <list>

#include "tetrad/parallel/shared.h"

namespace tetrad {
namespace {

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, Backend& backend)
      : host_(std::move(host)), backend_(backend) {}

  std::string_view name() const override { return "host-staged"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void end_others() override { host_->end_others(); }
  std::unique_ptr<Communicator> among(std::span<const int> ranks) override {
    return std::make_unique<StagedCommunicator>(host_->among(ranks), backend_);
  }
  std::unique_ptr<Messages> messages() override { return host_->messages(); }

 protected:
  void begin(std::uint64_t number, std::span<const Exchange> exchanges) override {
    Transfer& transfer = transfers_.emplace_back();
    std::vector<Exchange> staged(exchanges.size());
    for (std::size_t i = 0; i < exchanges.size(); ++i) {
      const auto& [send, receive] = exchanges[i];
      for (std::size_t other = 0; other < receive.size(); ++other) {
        const bool is_own = other == own();
        if (is_own) copy_own(send[other], receive[other]);
        staged[i].send.push_back(is_own ? std::span<const std::byte>()
                                        : transfer.brought_down(backend_, send[other]));
        staged[i].receive.push_back(is_own ? std::span<std::byte>() : transfer.to_bring_up(receive[other]));
      }
    }
    transfer.number = number;
    transfer.host_number = host_->start_exchange(staged);
  }

  void begin(std::uint64_t number, std::span<const Gather> gathers) override {
    Transfer& transfer = transfers_.emplace_back();
    std::vector<Gather> staged(gathers.size());
    for (std::size_t i = 0; i < gathers.size(); ++i) {
      const auto& [send, receive] = gathers[i];
      copy_own(send, receive[own()]);
      const std::span<std::byte> down =
          size() == 1 ? std::span<std::byte>() : transfer.brought_down(backend_, send);
      staged[i].send = down;
      for (std::size_t other = 0; other < receive.size(); ++other)
        staged[i].receive.push_back(other == own() ? down : transfer.to_bring_up(receive[other]));
    }
    transfer.number = number;
    transfer.host_number = host_->start_gather(staged);
  }

  void begin(std::uint64_t number, std::span<std::uint32_t> values) override {
    if (size() == 1) return;
    Transfer& transfer = transfers_.emplace_back();
    const std::span<std::byte> memory = std::as_writable_bytes(values);
    const std::span<std::byte> staged = transfer.to_bring_up(memory);
    backend_.download(memory, staged);
    transfer.number = number;
    transfer.host_number =
        host_->start_max_u32({reinterpret_cast<std::uint32_t*>(staged.data()), values.size()});
  }

  void finish(std::uint64_t number) override {
    for (; !transfers_.empty() && transfers_.front().number <= number; transfers_.pop_front()) {
      const Transfer& transfer = transfers_.front();
      host_->wait(transfer.host_number);
      for (const auto& [from, to] : transfer.up) backend_.upload(from.span<std::byte>(), to);
    }
  }

  std::vector<std::string> share_now(const std::string& own) override { return host_->share(own); }
  void broadcast_now(std::span<std::byte> memory, int root) override { host_->broadcast(memory, root); }
  void barrier_now() override { host_->barrier(); }

 private:
  /// One collective, with its memory on the program's side.
  struct Transfer {
    struct Up {
      Buffer from;
      std::span<std::byte> to;
    };
    std::uint64_t number = 0;
    std::uint64_t host_number = 0;
    std::list<Buffer> down = {};
    std::list<Up> up = {};

    std::span<std::byte> brought_down(Backend& backend, std::span<const std::byte> memory) {
      Buffer& staged = down.emplace_back(memory.size());
      backend.download(memory, staged.span<std::byte>());
      return staged.span<std::byte>();
    }
    std::span<std::byte> to_bring_up(std::span<std::byte> memory) {
      return up.emplace_back(Up{Buffer(memory.size()), memory}).from.span<std::byte>();
    }
  };

  std::size_t own() const { return static_cast<std::size_t>(rank()); }
  void copy_own(std::span<const std::byte> from, std::span<std::byte> to) {
    if (from.data() != to.data()) backend_.copy(from, to);
  }

  std::unique_ptr<Communicator> host_;
  Backend& backend_;
  std::deque<Transfer> transfers_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host, Backend& backend) {
  return std::make_unique<StagedCommunicator>(std::move(host), backend);
}

}  // namespace tetrad
