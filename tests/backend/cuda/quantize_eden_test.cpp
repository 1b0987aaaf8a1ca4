// SPDX-License-Identifier: Apache-2.0
// The work of the threads of nvfp4_eden.cu, done on the host, against the CPU backend: the eight parts of a
// transform are elements of an array, and the exchange between lanes is left out.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "backend/cuda/quantize_kernels.h"
#include "oracle/inputs.h"
#include "tetrad/backend/cuda/quantize/dispatch.cuh"
#include "tetrad/backend/cuda/quantize/generic_run.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_eden.cuh"

namespace tetrad::cuda::testing {
namespace {

using tetrad::testing::cpu_backend;

constexpr SignMask kSigns{{0x3C6EF372, 0xDAA66D2B, 0x78DDE6E4, 0x1715609D}};
constexpr QuantSpec kEden{.hadamard = 128, .signs = kSigns, .scaling = Scaling::eden};

using Parts = std::array<float[16], kParts>;

/// One transform, part by part.
void rotate(const SignMask& signs, Parts& parts) {
  for (std::uint32_t part = 0; part < kParts; ++part) begin_rotation(parts[part], signs_of_part(signs, part));
  for (std::uint32_t step = 1; step < kParts; step *= 2) {
    const Parts before = parts;
    for (std::uint32_t part = 0; part < kParts; ++part)
      for (int i = 0; i < 16; ++i)
        parts[part][i] = butterfly_between_parts(before[part][i], before[part ^ step][i], (part & step) != 0);
  }
  for (auto& part : parts) finish_rotation(part);
}

nvfp4::Projection sum_over_parts(std::array<nvfp4::Projection, kParts> sums, std::uint32_t part) {
  for (std::uint32_t step = 1; step < kParts; step *= 2) {
    const auto before = sums;
    for (std::uint32_t i = 0; i < kParts; ++i) sums[i] = sum_of(before[i], before[i ^ step]);
  }
  return sums[part];
}

class Kernels {
 public:
  Kernels(const MatrixView& x, const QuantizeOptions& options) {
    prepare(x, kEden, options, result_.tensor);
    p_ = make_problem(x, kEden, options, result_.tensor);
    between_.attach(p_);
  }

  Result rows() {
    using Group = std::array<std::uint32_t[8], kParts>;
    const auto load = [&](std::int64_t row, std::int64_t col, Group& group) {
      Parts parts;
      for (std::uint32_t part = 0; part < kParts; ++part) {
        const Bf16* x = static_cast<const Bf16*>(p_.x) + row * p_.row_stride + col + part * kGroup;
        std::memcpy(group[part], x, sizeof(group[part]));
        unpack_row(group[part], parts[part]);
      }
      rotate(p_.signs, parts);
      for (std::uint32_t part = 0; part < kParts; ++part) pack_row(parts[part], group[part]);
    };
    Group group;
    for_each_group([&](std::int64_t row, std::int64_t col) {
      load(row, col, group);
      for (const auto& pairs : group) raise(&p_.state->amax_bits, largest_magnitude(pairs));
    });
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p_.tensor_amax(), p_.scaling);
    for_each_group([&](std::int64_t row, std::int64_t col) {
      load(row, col, group);
      std::array<RowPart, kParts> parts;
      std::array<nvfp4::Projection, kParts> sums;
      for (std::uint32_t part = 0; part < kParts; ++part) {
        parts[part] = part_of_row(tensor, group[part]);
        sums[part] = parts[part].sum;
      }
      for (std::uint32_t part = 0; part < kParts; ++part) {
        const float correction = nvfp4::correction(sum_over_parts(sums, part));
        const std::int64_t at = col + part * kGroup;
        const RowBlock block =
            encode_row_part(parts[part], correction, p_.random_byte_of_block(row, at), group[part]);
        store_row_block(p_, row, at, block, group[part]);
      }
    });
    return std::move(result_);
  }

  Result columns() {
    constexpr std::uint32_t kLanes = 32;
    const RotatedPatches patches(p_);
    std::array<Patch, kLanes> warp;
    const auto load = [&](std::uint32_t unit) {
      for (std::uint32_t lane = 0; lane < kLanes; ++lane)
        warp[lane] = patches.load(patches.place(unit, lane));
      for (std::uint32_t first = 0; first < RotatedPatches::kAbreast; ++first)
        for (int pair = 0; pair < 2; ++pair) {
          Parts left, right;
          for (std::uint32_t part = 0; part < kParts; ++part)
            unpack_columns(warp[lane_of(part, first)], pair, left[part], right[part]);
          rotate(p_.signs, left);
          rotate(p_.signs, right);
          for (std::uint32_t part = 0; part < kParts; ++part)
            pack_columns(left[part], right[part], pair, warp[lane_of(part, first)]);
        }
    };
    const auto units = static_cast<std::uint32_t>(RotatedPatches::units(p_));
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      load(unit);
      for (const Patch& patch : warp) raise(&p_.state->amax_bits, find_plain_amax_of_patch(patch));
    }
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p_.tensor_amax(), p_.scaling);
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      load(unit);
      std::array<PatchEncoding, kLanes> encodings;
      std::array<PatchSums, kLanes> sums;
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
        encodings[lane] = encoding_of<false>(warp[lane], tensor, p_.scaling);
        sums[lane] = sums_of_patch(warp[lane], encodings[lane], tensor);
      }
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
        const RotatedPatches::Place at = patches.place(unit, lane);
        if (!at.inside) continue;
        PatchSums groups;
        for (int column = 0; column < kPatchCols; ++column) {
          std::array<nvfp4::Projection, kParts> parts;
          for (std::uint32_t part = 0; part < kParts; ++part)
            parts[part] = sums[lane_of(part, lane % RotatedPatches::kAbreast)].column[column];
          groups.column[column] = sum_over_parts(parts, at.part);
        }
        correct_patch(p_, at.patch, groups, encodings[lane]);
        const PhiloxWords random[kPatchCols] = {};
        if (p_.form == Form::operand)
          store_encoded_patch<false, true>(p_, at.patch, encodings[lane], false, random, warp[lane]);
        else
          store_encoded_patch<false, false>(p_, at.patch, encodings[lane], false, random, warp[lane]);
      }
    }
    return std::move(result_);
  }

 private:
  static std::uint32_t lane_of(std::uint32_t part, std::uint32_t abreast) {
    return part * RotatedPatches::kAbreast + abreast;
  }

  template <typename Body>
  void for_each_group(const Body& body) const {
    for (std::int64_t row = 0; row < p_.rows; ++row)
      for (std::int64_t col = 0; col < p_.cols; col += kRotation) body(row, col);
  }

  QuantProblem p_;
  Between between_;
  Result result_;
};

/// 36 columns of memory: the last warp has one patch of four.
TEST(EdenKernels, GiveTheCpusBytes) {
  constexpr std::int64_t kRows = 36, kCols = 256;
  for (const std::string& kind : oracle::input_kinds())
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(kind + " " + std::to_string(transposed));
      const Input x(oracle::rounded_to_bf16(oracle::make_input(kind, kRows, kCols)), kRows, kCols,
                    DType::bf16, transposed);
      const CodeOrder order = transposed ? CodeOrder::col_major : CodeOrder::row_major;
      QuantizedTensor expected;
      cpu_backend().quantize(x.view, kEden, options_of(order, Form::packed), expected);
      EXPECT_TRUE(suits_rotation_in_registers(
          make_problem(x.view, kEden, options_of(order, Form::packed), expected)));
      if (std::isnan(expected.amax)) continue;  // the transform can overflow
      const auto run = [&](Form form) {
        Kernels kernels(x.view, options_of(order, form));
        return transposed ? kernels.columns() : kernels.rows();
      };
      expect_equal(run(Form::packed), expected);
      expect_operand(run(Form::operand).tensor, expected);
    }
}

}  // namespace
}  // namespace tetrad::cuda::testing
