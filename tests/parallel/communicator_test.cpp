// SPDX-License-Identifier: Apache-2.0
// Collectives over every transport, with as many ranks as there are. What a rank sends is computed from
// sender and receiver, so that each knows what has to come.

#include "tetrad/ops/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "parallel/world.h"
#include "support/matrices.h"
#include "tetrad/core/error.h"
#include "tetrad/ops/ordered_sum.h"
#include "tetrad/parallel/sharding.h"

namespace tetrad::testing::communicator_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes message(int from, int to, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(31 * static_cast<std::size_t>(from) + 7 * static_cast<std::size_t>(to) +
                                      i % 251);
  return bytes;
}

class Collectives : public ::testing::TestWithParam<std::string> {
 protected:
  Communicator& ranks() const { return *connected_.communicator; }
  Backend& backend() const { return connected_.backend; }
  int rank() const { return ranks().rank(); }
  int size() const { return ranks().size(); }
  std::size_t index() const { return static_cast<std::size_t>(rank()); }
  std::size_t count() const { return static_cast<std::size_t>(size()); }

  Buffer up(const Bytes& bytes) const {
    Buffer memory = backend().allocate(bytes.size());
    backend().upload(bytes, memory.span<std::byte>());
    return memory;
  }
  Bytes down(std::span<const std::byte> memory) const {
    Bytes bytes(memory.size());
    backend().download(memory, bytes);
    return bytes;
  }
  /// Memory with other contents than what is expected there.
  Buffer blank(std::size_t size) const { return up(Bytes(size, std::byte{0xEE})); }

 private:
  Connected connected_ = connect(GetParam());
};

TEST_P(Collectives, ExchangeUnevenAndEmptyMessages) {
  const auto length = [](int from, int to) {
    return (from + to) % 3 == 0 ? std::size_t{0} : static_cast<std::size_t>(1000 * from + 10 * to + 1);
  };
  std::vector<Buffer> sent;
  std::vector<Buffer> received;
  Exchange exchange;
  for (int other = 0; other < size(); ++other) {
    sent.push_back(up(message(rank(), other, length(rank(), other))));
    received.push_back(blank(length(other, rank())));
    exchange.send.emplace_back(sent.back().span<std::byte>());
    exchange.receive.push_back(received.back().span<std::byte>());
  }
  ranks().exchange(exchange);
  for (int other = 0; other < size(); ++other)
    EXPECT_EQ(down(exchange.receive[static_cast<std::size_t>(other)]),
              message(other, rank(), length(other, rank())))
        << "from " << other;
}

TEST_P(Collectives, GatherUnevenAndEmptyPartsInPlace) {
  const auto length = [](int of) { return static_cast<std::size_t>(of % 2 == 1 ? 0 : 5000 + 17 * of); };
  std::size_t total = 0;
  for (int other = 0; other < size(); ++other) total += length(other);
  Buffer whole = blank(total);
  Gather gather;
  Bytes expected;
  for (int other = 0; other < size(); ++other) {
    const Bytes part = message(other, 0, length(other));
    gather.receive.push_back(whole.span<std::byte>().subspan(expected.size(), part.size()));
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const Bytes own = message(rank(), 0, length(rank()));
  backend().upload(own, gather.receive[index()]);
  gather.send = gather.receive[index()];
  ranks().gather(gather);
  EXPECT_EQ(down(whole.span<std::byte>()), expected);
}

TEST_P(Collectives, GatherFromElsewhere) {
  const Buffer own = up(message(rank(), 0, 100));
  std::vector<Buffer> received;
  Gather gather{own.span<std::byte>(), {}};
  for (int other = 0; other < size(); ++other)
    gather.receive.push_back(received.emplace_back(blank(100)).span<std::byte>());
  ranks().gather(gather);
  for (int other = 0; other < size(); ++other)
    EXPECT_EQ(down(gather.receive[static_cast<std::size_t>(other)]), message(other, 0, 100));
}

TEST_P(Collectives, MaximaOfBitsKeepNaN) {
  constexpr std::size_t kCount = 1000;
  const auto value = [&](int of, std::size_t i) {
    if (i == 3 && of == size() - 1) return std::numeric_limits<float>::quiet_NaN();
    return static_cast<float>((i * 7 + static_cast<std::size_t>(of) * 13) % 101);
  };
  std::vector<std::uint32_t> bits(kCount);
  std::vector<std::uint32_t> expected(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    bits[i] = std::bit_cast<std::uint32_t>(value(rank(), i));
    for (int other = 0; other < size(); ++other)
      expected[i] = std::max(expected[i], std::bit_cast<std::uint32_t>(value(other, i)));
  }
  Buffer memory = backend().allocate(kCount * sizeof(std::uint32_t));
  backend().upload(std::as_bytes(std::span(bits)), memory.span<std::byte>());
  ranks().max_u32(memory.span<std::uint32_t>());
  backend().download(memory.span<std::byte>(), std::as_writable_bytes(std::span(bits)));
  EXPECT_EQ(bits, expected);
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(bits[3])));
}

TEST_P(Collectives, SeveralAreStartedBeforeOneIsWaitedFor) {
  constexpr int kRounds = 5;
  std::vector<Buffer> wholes;
  std::vector<std::uint64_t> numbers;
  std::vector<Gather> gathers;
  for (int round = 0; round < kRounds; ++round) {
    Buffer& whole = wholes.emplace_back(blank(100 * count()));
    Gather& gather = gathers.emplace_back();
    for (int other = 0; other < size(); ++other)
      gather.receive.push_back(whole.span<std::byte>().subspan(100 * static_cast<std::size_t>(other), 100));
    backend().upload(message(rank(), round, 100), gather.receive[index()]);
    gather.send = gather.receive[index()];
  }
  for (const Gather& gather : gathers) numbers.push_back(ranks().start_gather({&gather, 1}));
  EXPECT_TRUE(std::ranges::is_sorted(numbers));
  EXPECT_EQ(ranks().share("in between").size(), count());
  ranks().wait(numbers[3]);
  ranks().wait(numbers[1]);  // nothing is left of it
  ranks().wait(numbers[4]);
  for (int round = 0; round < kRounds; ++round)
    for (int other = 0; other < size(); ++other)
      EXPECT_EQ(down(gathers[static_cast<std::size_t>(round)].receive[static_cast<std::size_t>(other)]),
                message(other, round, 100));
  ranks().wait(ranks().start_gather(gathers));  // all of them at once
  EXPECT_THROW(ranks().wait(numbers[4] + 100), Error);
}

TEST_P(Collectives, ShareAndBroadcast) {
  const std::vector<std::string> said =
      ranks().share(std::string(index() * 1500, 'x') + "of " + std::to_string(rank()));
  ASSERT_EQ(said.size(), count());
  for (std::size_t other = 0; other < said.size(); ++other)
    EXPECT_EQ(said[other], std::string(other * 1500, 'x') + "of " + std::to_string(other));
  for (int root = 0; root < size(); ++root) {
    Bytes bytes = rank() == root ? message(root, root, 3000) : Bytes(3000);
    ranks().broadcast(bytes, root);
    EXPECT_EQ(bytes, message(root, root, 3000));
  }
  EXPECT_THROW(ranks().broadcast({}, size()), Error);
  ranks().barrier();
}

/// From a thread of its own on each rank, while collectives go on.
TEST_P(Collectives, MessagesPassBesideThem) {
  if (size() == 1) GTEST_SKIP() << "nobody to send to";
  const std::unique_ptr<Messages> messages = ranks().messages();
  ASSERT_TRUE(messages);
  constexpr std::size_t kSize = 100'000;
  constexpr int kTimes = 20;
  const int next = (rank() + 1) % size();
  const int before = (rank() + size() - 1) % size();
  std::thread sender([&] {
    for (int i = 0; i < kTimes; ++i) messages->send(next, i % 3, message(rank(), i, kSize));
  });
  std::thread receiver([&] {
    for (int i = 0; i < kTimes; ++i) {
      Bytes bytes(kSize);
      EXPECT_TRUE(messages->receive(before, i % 3, bytes));
      EXPECT_EQ(bytes, message(before, i, kSize));
    }
  });
  for (int i = 0; i < kTimes; ++i) EXPECT_EQ(ranks().share(std::to_string(rank())).size(), count());
  sender.join();
  receiver.join();
}

TEST_P(Collectives, WaitForAMessageOnlySoLong) {
  if (size() == 1) GTEST_SKIP() << "nobody to wait for";
  const std::unique_ptr<Messages> messages = ranks().messages();
  ASSERT_TRUE(messages);
  const int other = (rank() + 1) % size();
  Bytes bytes(3);
  EXPECT_FALSE(messages->receive(other, 0, bytes, std::chrono::milliseconds(30)));
  ranks().barrier();  // nobody sends before all have waited
  messages->send((rank() + size() - 1) % size(), 0, message(rank(), 0, 3));
  EXPECT_TRUE(messages->receive(other, 0, bytes, std::chrono::minutes(1)));
  EXPECT_EQ(bytes, message(other, 0, 3));
}

TEST_P(Collectives, SomeRanksHaveACommunicatorOfTheirOwn) {
  std::vector<int> members;  // those of the same parity, in descending order
  for (int other = size() - 1; other >= 0; --other)
    if (other % 2 == rank() % 2) members.push_back(other);
  const std::unique_ptr<Communicator> some = ranks().among(members);
  ASSERT_EQ(some->size(), static_cast<int>(members.size()));
  EXPECT_EQ(members[static_cast<std::size_t>(some->rank())], rank());
  const std::vector<std::string> said = some->share(std::to_string(rank()));
  for (std::size_t i = 0; i < members.size(); ++i) EXPECT_EQ(said[i], std::to_string(members[i]));
  const int others = rank() == 0 ? 1 : 0;
  EXPECT_THROW(ranks().among(std::vector<int>{others}), Error);
  EXPECT_THROW(ranks().among(std::vector<int>{rank(), rank()}), Error);
  EXPECT_THROW(ranks().among(std::vector<int>{rank(), size()}), Error);
}

TEST_P(Collectives, RefuseListsThatDoNotFit) {
  Exchange exchange;
  EXPECT_THROW(ranks().exchange(exchange), Error);
  Buffer memory = blank(8);
  exchange.send.assign(count(), {});
  exchange.receive.assign(count(), {});
  exchange.send[index()] = memory.span<std::byte>();
  EXPECT_THROW(ranks().exchange(exchange), Error);
  Gather gather{memory.span<std::byte>(), exchange.receive};
  EXPECT_THROW(ranks().gather(gather), Error);
  EXPECT_FALSE(ranks().pending());
}

/// Eight groups of microbatches on however many ranks: each adds up its groups, sends every rank its band,
/// adds up what comes, and tells the others.
TEST_P(Collectives, ReduceScatterHasTheBitsOfOneRank) {
  constexpr int kGroups = 8;
  constexpr std::int64_t kRows = 77;
  constexpr std::int64_t kCols = 33;
  constexpr std::int64_t kCount = kRows * kCols;
  if (!ranks_keep_order(kGroups, size())) GTEST_SKIP() << "8 groups need 1, 2, 4 or 8 ranks";
  const auto bytes_of = [](std::int64_t rows) {
    return static_cast<std::size_t>(rows * kCols) * sizeof(float);
  };
  std::vector<Buffer> groups;
  std::vector<const void*> pointers;
  for (unsigned group = 0; group < kGroups; ++group) {
    const std::vector<float> values = to_f32(random_values(kCount, group, std::exp2(group)));
    groups.push_back(backend().allocate(bytes_of(kRows)));
    backend().upload(std::as_bytes(std::span(values)), groups.back().span<std::byte>());
    pointers.push_back(groups.back().data());
  }
  Buffer expected = backend().allocate(bytes_of(kRows));
  backend().ordered_sum({pointers, DType::f32, expected.as<float>(), kCount});

  const auto each = static_cast<std::size_t>(kGroups / size());
  Buffer own = backend().allocate(bytes_of(kRows));
  backend().ordered_sum(
      {std::span(pointers).subspan(index() * each, each), DType::f32, own.as<float>(), kCount});

  const std::vector<RowBand> bands = bands_of_rows(kRows, 16, size());
  const std::int64_t band_size = bands[index()].count * kCols;
  std::vector<Buffer> received;
  std::vector<const void*> parts;
  Exchange exchange;
  for (int other = 0; other < size(); ++other) {
    const RowBand& band = bands[static_cast<std::size_t>(other)];
    exchange.send.emplace_back(own.span<std::byte>().subspan(bytes_of(band.first), bytes_of(band.count)));
    received.push_back(backend().allocate(bytes_of(bands[index()].count)));
    exchange.receive.push_back(received.back().span<std::byte>());
    parts.push_back(received.back().data());
  }
  Buffer whole = blank(bytes_of(kRows));
  Gather gather;
  for (const RowBand& band : bands)
    gather.receive.push_back(whole.span<std::byte>().subspan(bytes_of(band.first), bytes_of(band.count)));
  gather.send = gather.receive[index()];

  ranks().exchange(exchange);
  backend().ordered_sum({parts, DType::f32, whole.as<float>() + bands[index()].first * kCols, band_size});
  ranks().gather(gather);
  EXPECT_EQ(down(whole.span<std::byte>()), down(expected.span<std::byte>()));
}

std::string test_name(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Collectives, ::testing::ValuesIn(transport_names()), test_name);

}  // namespace
}  // namespace tetrad::testing::communicator_test
