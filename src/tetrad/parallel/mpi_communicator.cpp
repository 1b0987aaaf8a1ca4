// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <thread>

#include "tetrad/core/error.h"
#include "tetrad/parallel/shared.h"

namespace tetrad {
namespace {

std::string text_of(int code) {
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  return text;
}

/// MPI, from the first communicator to the last.
class Session {
 public:
  Session() {
    int started = 0;
    MPI_Initialized(&started);
    TETRAD_CHECK(started == 0, "MPI has been started in this process already, and can be only once");
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads_);
    if (code != MPI_SUCCESS) throw Error("MPI does not start: " + text_of(code), ExitCode::failure);
    TETRAD_CHECK(
        threads_ >= MPI_THREAD_SERIALIZED,
        "this MPI cannot be called from different threads (MPI_THREAD_SERIALIZED): use one that can");
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// Not after an error: others may still wait for this rank, and the launcher ends them when it goes.
  ~Session() {
    if (std::uncaught_exceptions() == exceptions_) MPI_Finalize();
  }

  bool allows_threads_at_once() const { return threads_ == MPI_THREAD_MULTIPLE; }

 private:
  int exceptions_ = std::uncaught_exceptions();
  int threads_ = MPI_THREAD_SINGLE;
};

class MpiMessages final : public Messages {
 public:
  /// Takes `communicator`.
  MpiMessages(std::shared_ptr<Session> session, MPI_Comm communicator)
      : session_(std::move(session)), communicator_(communicator) {
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  }
  ~MpiMessages() override { MPI_Comm_free(&communicator_); }

  void send(int to, int channel, std::span<const std::byte> bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(bytes.data(), size_of(bytes), MPI_BYTE, to, channel, communicator_, &request), "send");
    finish(request);
  }

  bool receive(int from, int channel, std::span<std::byte> bytes,
               std::optional<std::chrono::milliseconds> patience) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(bytes.data(), size_of(bytes), MPI_BYTE, from, channel, communicator_, &request),
          "receive");
    return finish(request, patience);
  }

 private:
  static void check(int code, const char* operation) {
    if (code != MPI_SUCCESS)
      throw Error(fmt::format("{} of a message: {}", operation, text_of(code)), ExitCode::failure);
  }
  static int size_of(std::span<const std::byte> bytes) {
    TETRAD_CHECK(bytes.size() <= INT32_MAX, "a message of {} bytes is too long", bytes.size());
    return static_cast<int>(bytes.size());
  }

  /// MPI's own waiting would keep a core busy, which those who compute need. Messages that follow each other
  /// closely are not made to wait.
  static bool finish(MPI_Request& request, std::optional<std::chrono::milliseconds> patience = std::nullopt) {
    constexpr int kTriesAtOnce = 200;
    const auto begin = std::chrono::steady_clock::now();
    for (int tries = 0;; ++tries) {
      int is_done = 0;
      check(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "end");
      if (is_done != 0) return true;
      if (patience && std::chrono::steady_clock::now() - begin > *patience) break;
      if (tries < kTriesAtOnce)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    MPI_Cancel(&request);
    MPI_Status status;
    int is_cancelled = 0;
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &is_cancelled);
    return is_cancelled == 0;
  }

  std::shared_ptr<Session> session_;
  MPI_Comm communicator_;
};

class MpiCommunicator final : public Communicator {
 public:
  /// Takes `communicator`.
  MpiCommunicator(std::shared_ptr<Session> session, MPI_Comm communicator, const MpiOptions& options)
      : session_(std::move(session)), communicator_(communicator), options_(options) {
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
    TETRAD_CHECK(options_.largest_message > 0 && options_.largest_message <= INT32_MAX,
                 "messages of 1 to {} bytes, not {}", INT32_MAX, options_.largest_message);
  }
  ~MpiCommunicator() override { MPI_Comm_free(&communicator_); }

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void end_others() override { MPI_Abort(communicator_, static_cast<int>(ExitCode::failure)); }

  std::unique_ptr<Communicator> among(std::span<const int> ranks) override {
    check_members(ranks, rank_, size_);
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm result = MPI_COMM_NULL;
    check(MPI_Comm_group(communicator_, &all), "a group of ranks");
    check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "a group of ranks");
    check(MPI_Comm_create_group(communicator_, some, 0, &result), "a communicator of some ranks");
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return std::make_unique<MpiCommunicator>(session_, result, options_);
  }

  std::unique_ptr<Messages> messages() override {
    if (!session_->allows_threads_at_once()) return nullptr;
    MPI_Comm copy = MPI_COMM_NULL;
    check(MPI_Comm_dup(communicator_, &copy), "a communicator for messages");
    return std::make_unique<MpiMessages>(session_, copy);
  }

 protected:
  void begin(std::uint64_t number, std::span<const Exchange> exchanges) override {
    Transfer& transfer = begin_transfer(number, "exchange");
    for (const Exchange& exchange : exchanges) {
      for_each_other([&](int other) { receive(transfer, other, exchange.receive[as_index(other)]); });
      for_each_other([&](int other) { send(transfer, other, exchange.send[as_index(other)]); });
      copy_unless_same(exchange.send[as_index(rank_)], exchange.receive[as_index(rank_)]);
    }
  }

  void begin(std::uint64_t number, std::span<const Gather> gathers) override {
    Transfer& transfer = begin_transfer(number, "gather");
    for (const Gather& gather : gathers) {
      for_each_other([&](int other) { receive(transfer, other, gather.receive[as_index(other)]); });
      for_each_other([&](int other) { send(transfer, other, gather.send); });
      copy_unless_same(gather.send, gather.receive[as_index(rank_)]);
    }
  }

  void begin(std::uint64_t number, std::span<std::uint32_t> values) override {
    Transfer& transfer = begin_transfer(number, "max_u32");
    const std::size_t most = std::max<std::size_t>(1, options_.largest_message / sizeof(std::uint32_t));
    for (std::size_t first = 0; first < values.size(); first += most) {
      const std::size_t count = std::min(most, values.size() - first);
      check(MPI_Iallreduce(MPI_IN_PLACE, values.data() + first, static_cast<int>(count), MPI_UINT32_T,
                           MPI_MAX, communicator_, &transfer.add(Transfer::kAnySize)),
            transfer.operation);
    }
  }

  void finish(std::uint64_t number) override {
    for (; !transfers_.empty() && transfers_.front().number <= number; transfers_.pop_front())
      finish(transfers_.front());
  }

  std::vector<std::string> share_now(const std::string& own) override {
    const std::uint64_t length = own.size();
    std::vector<std::uint64_t> lengths(as_index(size_));
    check(MPI_Allgather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, communicator_), "share");
    Transfer transfer{0, "share", kShareTag};
    std::vector<std::string> all;
    for (const std::uint64_t each : lengths) all.emplace_back(each, '\0');
    all[as_index(rank_)] = own;
    for_each_other([&](int other) {
      receive(transfer, other, std::as_writable_bytes(std::span(all[as_index(other)])));
    });
    for_each_other([&](int other) { send(transfer, other, std::as_bytes(std::span(own))); });
    finish(transfer);
    return all;
  }

  void broadcast_now(std::span<std::byte> memory, int root) override {
    for_each_message(memory, [&](std::span<std::byte> part) {
      check(MPI_Bcast(part.data(), static_cast<int>(part.size()), MPI_BYTE, root, communicator_),
            "broadcast");
    });
  }

  void barrier_now() override { check(MPI_Barrier(communicator_), "barrier"); }

 private:
  /// The messages of one collective.
  struct Transfer {
    static constexpr int kAnySize = -1;

    std::uint64_t number = 0;
    const char* operation = "";
    int tag = 0;
    std::vector<MPI_Request> requests = {};
    std::vector<int> sizes = {};  //!< what a request has to receive

    MPI_Request& add(int size) {
      sizes.push_back(size);
      return requests.emplace_back(MPI_REQUEST_NULL);
    }
  };

  static constexpr int kShareTag = 0;

  static std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }

  void check(int code, const char* operation) const {
    if (code == MPI_SUCCESS) return;
    throw Error(fmt::format("rank {} of {}: {}: {}", rank_, size_, operation, text_of(code)),
                ExitCode::failure);
  }

  /// Messages of different collectives must not be taken for each other, whatever goes wrong.
  Transfer& begin_transfer(std::uint64_t number, const char* operation) {
    constexpr std::uint64_t kTags = 1 << 14;  // MPI promises twice as many
    return transfers_.emplace_back(
        Transfer{number, operation, kShareTag + 1 + static_cast<int>(number % kTags)});
  }

  /// Beginning with the next rank, so that not all of them send to the same one at first.
  template <typename Body>
  void for_each_other(const Body& body) const {
    for (int step = 1; step < size_; ++step) body((rank_ + step) % size_);
  }

  template <typename Span, typename Body>
  void for_each_message(Span memory, const Body& body) const {
    for (std::size_t first = 0; first < memory.size(); first += options_.largest_message)
      body(memory.subspan(first, std::min(options_.largest_message, memory.size() - first)));
  }

  void receive(Transfer& transfer, int from, std::span<std::byte> memory) {
    for_each_message(memory, [&](std::span<std::byte> part) {
      const int bytes = static_cast<int>(part.size());
      check(MPI_Irecv(part.data(), bytes, MPI_BYTE, from, transfer.tag, communicator_, &transfer.add(bytes)),
            transfer.operation);
    });
  }

  void send(Transfer& transfer, int to, std::span<const std::byte> memory) {
    for_each_message(memory, [&](std::span<const std::byte> part) {
      check(MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, to, transfer.tag, communicator_,
                      &transfer.add(Transfer::kAnySize)),
            transfer.operation);
    });
  }

  void finish(Transfer& transfer) {
    std::vector<MPI_Status> statuses(transfer.requests.size());
    const int code =
        MPI_Waitall(static_cast<int>(transfer.requests.size()), transfer.requests.data(), statuses.data());
    if (code == MPI_ERR_IN_STATUS)
      for (const MPI_Status& status : statuses)
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, transfer.operation);
    check(code, transfer.operation);
    for (std::size_t i = 0; i < statuses.size(); ++i) {
      if (transfer.sizes[i] == Transfer::kAnySize) continue;
      int bytes = 0;
      MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
      if (bytes != transfer.sizes[i])
        throw Error(fmt::format("rank {} of {}: {}: {} bytes from rank {} instead of {}", rank_, size_,
                                transfer.operation, bytes, statuses[i].MPI_SOURCE, transfer.sizes[i]),
                    ExitCode::failure);
    }
  }

  std::shared_ptr<Session> session_;
  MPI_Comm communicator_;
  MpiOptions options_;
  int rank_ = 0;
  int size_ = 1;
  std::deque<Transfer> transfers_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options) {
  auto session = std::make_shared<Session>();
  MPI_Comm all = MPI_COMM_NULL;
  const int code = MPI_Comm_dup(MPI_COMM_WORLD, &all);
  if (code != MPI_SUCCESS) throw Error("a communicator of all ranks: " + text_of(code), ExitCode::failure);
  return std::make_unique<MpiCommunicator>(std::move(session), all, options);
}

std::string mpi_version() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  return text.substr(0, text.find_first_of(",\n"));  // Open MPI goes on with who built it
}

}  // namespace tetrad
