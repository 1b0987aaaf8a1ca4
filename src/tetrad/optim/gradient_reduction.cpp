// SPDX-License-Identifier: Apache-2.0
#include "tetrad/optim/gradient_reduction.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tetrad/model/weight_shards.h"

namespace tetrad {
namespace {

/// What lies behind another in a buffer begins at a multiple of this.
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::size_t size_of(DType type) { return static_cast<std::size_t>(bits_of(type)) / 8; }

/// The elements of a parameter that each rank adds up.
std::vector<RowBand> parts_of(const Parameter& parameter, int ranks) {
  if (parameter.shards == nullptr) return bands_of_rows(parameter.gradient.size(), 1, ranks);
  std::vector<RowBand> parts = parameter.shards->bands(parameter);
  for (RowBand& part : parts) part = {part.first * parameter.cols(), part.count * parameter.cols()};
  return parts;
}

Buffer allocate(Backend& backend, std::size_t bytes) {
  return bytes > 0 ? backend.allocate(bytes) : Buffer();
}

}  // namespace

GradientReduction::GradientReduction(Backend& backend, Routes& routes,
                                     const std::vector<std::unique_ptr<Parameter>>& parameters,
                                     const std::vector<GradientUnit>& units, DType wire)
    : backend_(backend), routes_(routes), parameters_(parameters), units_(units), wire_(wire) {
  for (const auto& parameter : parameters_) parts_.push_back(parts_of(*parameter, routes_.ranks().size()));
  const std::span<const Leg> legs = routes_.legs();
  std::size_t rounded = 0;
  std::vector<std::size_t> received(legs.size());
  std::vector<std::size_t> sums(legs.size());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    std::size_t whole = 0;
    for (const std::size_t p : units_[unit])
      whole += aligned(static_cast<std::size_t>(parameters_[p]->gradient.size()) * size_of(wire_));
    rounded = std::max(rounded, whole);
    for (std::size_t leg = 0; leg < legs.size(); ++leg) {
      std::size_t in = 0;
      std::size_t out = 0;
      for_each_sum(leg, unit, [&](std::size_t p, const std::vector<int>& owners, int own) {
        in += owners.size() * aligned(bytes_of(p, own, type_on(leg)));
        out += aligned(bytes_of(p, own, DType::f32));
      });
      received[leg] = std::max(received[leg], in);
      if (leg + 1 < legs.size()) sums[leg] = std::max(sums[leg], out);
    }
  }
  if (wire_ != DType::f32) rounded_ = allocate(backend_, rounded);
  for (std::size_t leg = 0; leg < legs.size(); ++leg)
    memory_.push_back({allocate(backend_, received[leg]), allocate(backend_, sums[leg])});
}

template <typename Body>
void GradientReduction::for_each_sum(std::size_t leg, std::size_t unit, const Body& body) const {
  const auto& [ranks, lists] = routes_.legs()[leg];
  for (const std::size_t parameter : units_[unit])
    for (const std::vector<int>& owners : lists)
      body(parameter, owners, owners[static_cast<std::size_t>(ranks->rank())]);
}

const RowBand& GradientReduction::part_of(std::size_t parameter, int rank) const {
  return parts_[parameter][static_cast<std::size_t>(rank)];
}

std::size_t GradientReduction::bytes_of(std::size_t parameter, int rank, DType type) const {
  return static_cast<std::size_t>(part_of(parameter, rank).count) * size_of(type);
}

std::span<float> GradientReduction::own_part(std::size_t index) const {
  Parameter& parameter = *parameters_[index];
  const RowBand& part = part_of(index, routes_.ranks().rank());
  float* const sums = parameter.summed_gradient(parameter.band.first);
  return {sums + (part.first - parameter.first_element()), static_cast<std::size_t>(part.count)};
}

std::vector<std::vector<std::span<std::byte>>> GradientReduction::to_send(std::size_t leg, std::size_t unit) {
  std::vector<std::vector<std::span<std::byte>>> all(parameters_.size());
  if (leg > 0) {  // what was added up on the one before
    std::span<std::byte> next = memory_[leg - 1].sums.span<std::byte>();
    for_each_sum(leg - 1, unit, [&](std::size_t p, const std::vector<int>& /*owners*/, int own) {
      all[p].resize(parts_[p].size());
      all[p][static_cast<std::size_t>(own)] = next.first(bytes_of(p, own, DType::f32));
      next = next.subspan(aligned(bytes_of(p, own, DType::f32)));
    });
    return all;
  }
  std::span<std::byte> next = rounded_.span<std::byte>();
  for (const std::size_t p : units_[unit]) {
    Tensor& gradient = parameters_[p]->gradient;
    std::span<std::byte> whole = gradient.bytes();
    if (wire_ != DType::f32) {
      whole = next.first(static_cast<std::size_t>(gradient.size()) * size_of(wire_));
      next = next.subspan(aligned(whole.size()));
      backend_.cast({MatrixView{gradient.f32(), DType::f32, 1, gradient.size(), gradient.size(), 1},
                     MutableMatrixView{whole.data(), wire_, 1, gradient.size(), gradient.size(), 1}});
    }
    for (const RowBand& part : parts_[p])
      all[p].push_back(whole.subspan(static_cast<std::size_t>(part.first) * size_of(wire_),
                                     static_cast<std::size_t>(part.count) * size_of(wire_)));
  }
  return all;
}

void GradientReduction::launch(std::size_t leg, std::size_t unit) {
  const auto send = to_send(leg, unit);
  std::span<std::byte> free = memory_[leg].received.span<std::byte>();
  std::vector<Exchange> exchanges;
  for_each_sum(leg, unit, [&](std::size_t p, const std::vector<int>& owners, int own) {
    Exchange& exchange = exchanges.emplace_back();
    const std::size_t bytes = bytes_of(p, own, type_on(leg));
    for (const int owner : owners) {
      exchange.send.emplace_back(send[p][static_cast<std::size_t>(owner)]);
      exchange.receive.push_back(free.first(bytes));
      free = free.subspan(aligned(bytes));
    }
  });
  flights_.push_back({unit, leg, routes_.legs()[leg].ranks->start_exchange(exchanges)});
}

void GradientReduction::add(const Flight& flight) {
  const bool is_last = flight.leg + 1 == routes_.legs().size();
  const DType type = type_on(flight.leg);
  const std::byte* received = memory_[flight.leg].received.data();
  std::byte* sums = memory_[flight.leg].sums.data();
  std::vector<const void*> parts;
  for_each_sum(flight.leg, flight.unit, [&](std::size_t p, const std::vector<int>& owners, int own) {
    parts.clear();
    for (std::size_t from = 0; from < owners.size(); ++from) {
      parts.push_back(received);
      received += aligned(bytes_of(p, own, type));
    }
    auto* const out = is_last ? own_part(p).data() : reinterpret_cast<float*>(sums);
    if (!is_last) sums += aligned(bytes_of(p, own, DType::f32));
    const std::int64_t size = part_of(p, own).count;
    if (size > 0) backend_.ordered_sum({.parts = parts, .dtype = type, .out = out, .size = size});
  });
}

void GradientReduction::go_on() {
  for (const Flight& flight : std::exchange(flights_, {})) {
    routes_.legs()[flight.leg].ranks->wait(flight.number);
    add(flight);
    if (flight.leg + 1 < routes_.legs().size())
      launch(flight.leg + 1, flight.unit);
    else
      added_(flight.unit);
  }
}

void GradientReduction::start(std::size_t unit) {
  go_on();
  if (!routes_.legs().empty()) return launch(0, unit);
  if (wire_ != DType::f32) {  // a rank alone rounds as many do
    const auto rounded = to_send(0, unit);
    for (const std::size_t p : units_[unit]) {
      const std::array<const void*, 1> part = {rounded[p].front().data()};
      const std::span<float> own = own_part(p);
      backend_.ordered_sum({.parts = part, .dtype = wire_, .out = own.data(), .size = std::ssize(own)});
    }
  }
  added_(unit);
}

void GradientReduction::finish() {
  while (!flights_.empty()) go_on();
}

void GradientReduction::start_gather(std::size_t unit) {
  if (routes_.legs().empty()) return;
  std::vector<PartsOfRanks> tensors;
  for (const std::size_t p : units_[unit]) {
    if (parameters_[p]->shards != nullptr) continue;
    float* const sums = parameters_[p]->summed_gradient(0);
    PartsOfRanks& parts = tensors.emplace_back();
    for (const RowBand& part : parts_[p])
      parts.push_back(
          std::as_writable_bytes(std::span(sums + part.first, static_cast<std::size_t>(part.count))));
  }
  if (!tensors.empty()) last_gather_ = routes_.start_gather(std::move(tensors));
}

void GradientReduction::wait() { routes_.wait(last_gather_); }

}  // namespace tetrad
