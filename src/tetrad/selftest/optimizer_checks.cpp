// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>

#include "tetrad/selftest/checks.h"

namespace tetrad::selftest {
namespace {

// One element; a part of a block of threads; several blocks.
constexpr std::array<std::int64_t, 3> kSizes = {1, 77, 70'001};
constexpr double kF64Sum = 1e-12;

void adamw(Stage& stage) {
  std::vector<AdamWTensor> tensors;
  for (const std::int64_t size : kSizes) {
    AdamWTensor tensor;
    tensor.weight = stage.changed("weight", stage.draw_f32(size), kSameBytes).f32();
    tensor.gradient = stage.draw_f32(size).f32();
    tensor.first_moment = stage.changed("first_moment", stage.draw(1, size, 0.1), kSameBytes).out().data;
    tensor.second_moment = stage.changed("second_moment", stage.draw(1, size, 0.1, 1), kSameBytes).out().data;
    tensor.size = size;
    tensor.decay = size > 1;
    tensor.moments = stage.dtype();
    tensor.parameter = static_cast<std::uint32_t>(tensors.size());
    tensors.push_back(tensor);
  }
  AdamWStep op;
  op.tensors = tensors;
  op.step = 7;
  op.learning_rate = 0.01f;
  op.gradient_scale = 0.5f;
  op.seed = 1;
  stage.backend().adamw(op);
}

void squared_norms(Stage& stage) {
  std::vector<AdamWTensor> tensors;
  for (const std::int64_t size : kSizes) {
    AdamWTensor tensor;
    tensor.gradient = stage.draw_f32(size).f32();
    tensor.size = size;
    tensors.push_back(tensor);
  }
  for (const double norm : stage.backend().squared_norms(tensors))
    stage.note("squared norm", {norm}, kF64Sum);
}

void amaxes(Stage& stage) {
  std::vector<Amaxes::Tensor> tensors;
  for (const std::int64_t size : kSizes) tensors.push_back({stage.draw_f32(size).f32(), size});
  float* const bits = stage.result_f32("bits", std::ssize(tensors), kSameBytes).f32();
  stage.backend().amaxes({tensors, reinterpret_cast<std::uint32_t*>(bits)});
}

void deviations(Stage& stage) {
  std::vector<DeviationTensor> tensors;
  for (const std::int64_t size : kSizes)
    tensors.push_back({stage.draw_f32(size).f32(), stage.draw_f32(size).f32(),
                       stage.changed("sum", stage.draw_f32(size), kSameBytes).f32(), size});
  for (const DeviationSums& sums : stage.backend().deviations(tensors))
    stage.note("deviation sums", {sums.reference, sums.product, sums.deviation}, kF64Sum);
}

void ordered_sum(Stage& stage, int count) {
  for (const std::int64_t size : kSizes) {
    std::vector<const void*> parts;
    for (int k = 0; k < count; ++k) parts.push_back(stage.draw(1, size).view().data);
    stage.backend().ordered_sum(
        {parts, stage.dtype(), stage.result_f32("sum", size, kSameBytes).f32(), size});
  }
}

}  // namespace

std::vector<Check> optimizer_checks() {
  std::vector<Check> checks = {{"adamw", "moments in f32", {.dtype = DType::f32}, adamw, true},
                               {"adamw", "moments in BF16", {.dtype = DType::bf16}, adamw, true},
                               {"squared_norms", "three tensors", {}, squared_norms, true},
                               {"amaxes", "three tensors", {}, amaxes, true},
                               {"deviations", "three tensors", {}, deviations, true}};
  for (const int count : {1, 7, 16})  // the last has more levels than the sums of a node's ranks
    add_for_all_storages(checks, "ordered_sum", fmt::format("{} parts", count),
                         [=](Stage& stage) { ordered_sum(stage, count); });
  return checks;
}

}  // namespace tetrad::selftest
