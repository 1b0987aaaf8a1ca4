// SPDX-License-Identifier: Apache-2.0
#include "tetrad/optim/gradient_reduction.h"

#include <algorithm>
#include <cstdint>

#include "tetrad/model/weight_shards.h"

namespace tetrad {
namespace {

constexpr std::size_t kBucketBytes = std::size_t{64} << 20;

/// What lies behind another in a buffer begins at a multiple of this.
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// The elements of a parameter that each rank adds up.
std::vector<RowBand> parts_of(const Parameter& parameter, int ranks) {
  if (parameter.shards == nullptr) return bands_of_rows(parameter.gradient.size(), 1, ranks);
  std::vector<RowBand> parts = parameter.shards->bands(parameter);
  for (RowBand& part : parts) part = {part.first * parameter.cols(), part.count * parameter.cols()};
  return parts;
}

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
    parts_.push_back(parts_of(*parameters_[i], ranks_.size()));
    bucket.bytes += count * aligned(bytes_of(i, ranks_.rank()).size());
    largest = std::max(largest, bucket.bytes);
  }
  for (Buffer& buffer : received_) buffer = backend_.allocate(largest);
}

const RowBand& GradientReduction::part_of(std::size_t parameter, int rank) const {
  return parts_[parameter][static_cast<std::size_t>(rank)];
}

std::span<std::byte> GradientReduction::bytes_of(std::size_t parameter, int rank) const {
  const RowBand& part = part_of(parameter, rank);
  return parameters_[parameter]->gradient.bytes().subspan(
      static_cast<std::size_t>(part.first) * sizeof(float),
      static_cast<std::size_t>(part.count) * sizeof(float));
}

std::vector<Exchange> GradientReduction::exchanges(const Bucket& bucket, Buffer& received) const {
  std::vector<Exchange> all;
  std::span<std::byte> free = received.span<std::byte>();
  for (std::size_t i = bucket.first; i < bucket.last; ++i) {
    Exchange& exchange = all.emplace_back();
    const std::size_t own = bytes_of(i, ranks_.rank()).size();
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      exchange.send.emplace_back(bytes_of(i, rank));
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
    const RowBand& own = part_of(i, ranks_.rank());
    for (const void*& part : parts) {
      part = next;
      next += aligned(bytes_of(i, ranks_.rank()).size());
    }
    if (own.count == 0) continue;
    backend_.ordered_sum(
        {.parts = parts, .out = parameters_[i]->gradient.f32() + own.first, .size = own.count});
  }
}

std::vector<Gather> GradientReduction::gathers(const Bucket& bucket) const {
  std::vector<Gather> all;
  for (std::size_t i = bucket.first; i < bucket.last; ++i) {
    if (parameters_[i]->shards != nullptr) continue;
    Gather& gather = all.emplace_back();
    for (int rank = 0; rank < ranks_.size(); ++rank) gather.receive.push_back(bytes_of(i, rank));
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
