// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/ordered_sum.h"

#include "tetrad/backend/cpu/element.h"
#include "tetrad/backend/cpu/simd.h"
#include "tetrad/numerics/tree_sum.h"

namespace tetrad::cpu {
namespace {

struct Neighbours {
  static constexpr std::int64_t kCount = 16;
  F32x16 value;

  friend Neighbours operator+(const Neighbours& a, const Neighbours& b) { return {a.value + b.value}; }
};

}  // namespace

void ordered_sum(Threads& threads, const OrderedSum& op) {
  check(op);
  constexpr std::int64_t kPiece = 1 << 14;
  with_element(op.dtype, "ordered_sum", [&]<typename T>(T) {
    parallel_ranges(threads, op.size, kPiece, [&](std::int64_t first, std::int64_t last) {
      std::int64_t i = first;
      for (; i + Neighbours::kCount <= last; i += Neighbours::kCount) {
        TreeSum<Neighbours, OrderedSum::kLevels> sum;
        for (const void* part : op.parts) sum.add({load_lanes(static_cast<const T*>(part) + i)});
        store_lanes(sum.total().value, op.out + i);
      }
      for (; i < last; ++i) {
        TreeSum<float, OrderedSum::kLevels> sum;
        for (const void* part : op.parts) sum.add(load(static_cast<const T*>(part)[i]));
        op.out[i] = sum.total();
      }
    });
  });
}

}  // namespace tetrad::cpu
