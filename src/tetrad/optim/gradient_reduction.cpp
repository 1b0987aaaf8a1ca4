// SPDX-License-Identifier: Apache-2.0
#include "tetrad/optim/gradient_reduction.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace tetrad {
namespace {

constexpr std::size_t kBucketBytes = std::size_t{64} << 20;

/// What lies behind another in a buffer begins at a multiple of this.
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

GradientReduction::GradientReduction(Backend& backend, Communicator& ranks,
                                     const std::vector<std::unique_ptr<Parameter>>& parameters)
    : backend_(backend), ranks_(ranks), parameters_(parameters) {
  if (ranks_.size() == 1) return;
  const auto count = static_cast<std::size_t>(ranks_.size());
  std::size_t largest = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (buckets_.empty() || buckets_.back().bytes >= kBucketBytes) buckets_.push_back({i, i});
    Bucket& bucket = buckets_.back();
    bucket.last = i + 1;
    bucket.bytes += count * aligned(part_of(*parameters_[i], ranks_.rank()).bytes());
    largest = std::max(largest, bucket.bytes);
  }
  for (Buffer& buffer : received_) buffer = backend_.allocate(largest);
}

GradientReduction::Part GradientReduction::part_of(const Parameter& parameter, int rank) const {
  const auto size = static_cast<std::size_t>(parameter.gradient.size());
  const auto count = static_cast<std::size_t>(ranks_.size());
  const auto at = [&](int r) { return size * static_cast<std::size_t>(r) / count; };
  return {at(rank), at(rank + 1)};
}

std::vector<Exchange> GradientReduction::exchanges(const Bucket& bucket, Buffer& received) const {
  std::vector<Exchange> all;
  std::span<std::byte> free = received.span<std::byte>();
  for (std::size_t i = bucket.first; i < bucket.last; ++i) {
    const Parameter& parameter = *parameters_[i];
    Exchange& exchange = all.emplace_back();
    const std::size_t own = part_of(parameter, ranks_.rank()).bytes();
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Part part = part_of(parameter, rank);
      exchange.send.push_back(parameter.gradient.bytes().subspan(part.begin * sizeof(float), part.bytes()));
      exchange.receive.push_back(free.first(own));
      free = free.subspan(aligned(own));
    }
  }
  return all;
}

void GradientReduction::add(const Bucket& bucket, Buffer& received) {
  const std::byte* next = received.span<std::byte>().data();
  std::vector<const void*> parts(static_cast<std::size_t>(ranks_.size()));
  for (std::size_t i = bucket.first; i < bucket.last; ++i) {
    const Part own = part_of(*parameters_[i], ranks_.rank());
    for (const void*& part : parts) {
      part = next;
      next += aligned(own.bytes());
    }
    if (own.begin == own.end) continue;
    backend_.ordered_sum({.parts = parts,
                          .out = parameters_[i]->gradient.f32() + own.begin,
                          .size = static_cast<std::int64_t>(own.end - own.begin)});
  }
}

std::vector<Gather> GradientReduction::gathers(const Bucket& bucket) const {
  std::vector<Gather> all;
  for (std::size_t i = bucket.first; i < bucket.last; ++i) {
    Gather& gather = all.emplace_back();
    const std::span<std::byte> gradient = parameters_[i]->gradient.bytes();
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Part part = part_of(*parameters_[i], rank);
      gather.receive.push_back(gradient.subspan(part.begin * sizeof(float), part.bytes()));
    }
    gather.send = gather.receive[static_cast<std::size_t>(ranks_.rank())];
  }
  return all;
}

void GradientReduction::reduce() {
  if (buckets_.empty()) return;
  const auto start = [&](std::size_t k) {
    return ranks_.start_exchange(exchanges(buckets_[k], received_[k % 2]));
  };
  std::uint64_t under_way = start(0);
  std::uint64_t last = 0;
  for (std::size_t k = 0; k < buckets_.size(); ++k) {
    ranks_.wait(under_way);
    if (k + 1 < buckets_.size()) under_way = start(k + 1);
    add(buckets_[k], received_[k % 2]);
    last = ranks_.start_gather(gathers(buckets_[k]));
  }
  ranks_.wait(last);
}

}  // namespace tetrad
