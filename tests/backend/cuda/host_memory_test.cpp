// SPDX-License-Identifier: Apache-2.0
// Memory of the machine that is pinned in pieces: copies beside operations do not care where pieces meet.

#include "tetrad/backend/cuda/common/host_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "tetrad/ops/backend.h"

namespace tetrad::testing::host_memory_test {
namespace {

TEST(PinnedMemory, IsCopiedAcrossItsPieces) {
  constexpr std::size_t kBytes = std::size_t{96} << 20;
  const std::unique_ptr<Backend> backend = make_cuda_backend({.tune = false});
  Buffer host = backend->allocate_on_host(cuda::kPinnedPiece + kBytes);
  const std::span<std::byte> across = host.span<std::byte>().subspan(cuda::kPinnedPiece - kBytes / 3, kBytes);
  ASSERT_LT(cuda::until_next_piece(across.data()), kBytes) << "the test wants what lies in two pieces";
  std::vector<std::byte> values(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) values[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  Buffer device = backend->allocate(kBytes);
  backend->upload(values, device.span<std::byte>());
  backend->copy_in_lane(0, device.span<std::byte>(), across);
  backend->join_lane(0);
  backend->set_to_zero(device.span<std::byte>());
  backend->copy_in_lane(1, across, device.span<std::byte>());
  backend->join_lane(1);
  std::vector<std::byte> back(kBytes);
  backend->download(device.span<std::byte>(), back);
  EXPECT_TRUE(back == values);
}

}  // namespace
}  // namespace tetrad::testing::host_memory_test
