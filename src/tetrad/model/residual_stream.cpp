// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/residual_stream.h"

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {
namespace {

void check_copy() {
  if (failpoint_fails("offload.copy")) fail_errno("the residual stream on the host cannot be copied");
}

}  // namespace

ResidualStream::ResidualStream(Backend& backend, std::int64_t blocks, DType storage, std::int64_t tokens,
                               std::int64_t hidden, Kept kept)
    : backend_(backend), last_(static_cast<std::size_t>(blocks)) {
  const std::int64_t count =
      kept == Kept::nowhere ? std::min<std::int64_t>(2, blocks + 1) : buffers(blocks, kept == Kept::on_host);
  for (std::int64_t i = 0; i < count; ++i) buffers_.push_back(backend.make_tensor(storage, tokens, hidden));
  const std::size_t others = last_ + 1 - buffers_.size();
  if (kept == Kept::on_host && others > 0)
    host_ = backend.allocate_on_host(others * buffers_.front().bytes().size());
}

std::span<std::byte> ResidualStream::host(std::size_t i) {
  const std::size_t size = buffers_.front().bytes().size();
  return {host_.data() + i * size, size};
}

MutableMatrixView ResidualStream::begin(std::size_t i, std::int64_t rows) {
  if (host_.size() > 0) backend_.join_lane(place(i));  // what the buffer held has been copied
  return tetrad::rows(buffers_[place(i)].view(), 0, rows);
}

void ResidualStream::save(std::size_t i) {
  if (!is_on_host(i)) return;
  check_copy();
  backend_.copy_in_lane(place(i), buffers_[place(i)].bytes(), host(i));
}

MatrixView ResidualStream::restore(std::size_t i) {
  if (is_on_host(i)) backend_.join_lane(place(i));
  return buffers_[place(i)].const_view();
}

void ResidualStream::release(std::size_t i) {
  if (i < buffers_.size()) return;
  const std::size_t next = i - buffers_.size();  // in the same buffer, and so behind its own way to the host
  check_copy();
  backend_.copy_in_lane(place(next), host(next), buffers_[place(next)].bytes());
}

std::size_t ResidualStream::bytes() const { return buffers_.size() * buffers_.front().bytes().size(); }

}  // namespace tetrad
