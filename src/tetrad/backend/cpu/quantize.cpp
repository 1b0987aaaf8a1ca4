// SPDX-License-Identifier: Apache-2.0
// Quantization in two passes over the input: block maxima (whose maximum is the tensor's amax), then codes.
// Where scales of square blocks are chosen (4/6, search) there is a pass between them. Every pass runs over
// the same tiles.

#include "tetrad/backend/cpu/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "tetrad/backend/cpu/block_grid.h"
#include "tetrad/backend/cpu/eden.h"
#include "tetrad/backend/cpu/encode.h"
#include "tetrad/backend/cpu/measure.h"
#include "tetrad/backend/cpu/row_maxima.h"
#include "tetrad/backend/cpu/scale_choice.h"
#include "tetrad/backend/cpu/simd.h"
#include "tetrad/backend/cpu/workspace.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7F800000u;

thread_local Buffer block_amax_workspace;

class Quantizer {
 public:
  Quantizer(Threads& threads, const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
            QuantizedTensor& out)
      : threads_(threads),
        x_(x),
        spec_(spec),
        options_(options),
        random_(options.key != nullptr ? options.random.with(*options.key) : options.random),
        out_(out),
        grid_(x, spec.block),
        reader_(x, spec, grid_.block_rows(), grid_.block_cols()),
        step_(reader_.step()),
        block_amax_(workspace(block_amax_workspace, grid_.size()), static_cast<std::size_t>(grid_.size())) {}

  QuantStats run() {
    allocate();
    QuantStats stats;
    stats.blocks = spec_.block.is_whole() ? 1 : grid_.size();
    stats.amax = find_block_amax();
    if (!std::isfinite(stats.amax)) {
      poison(stats);
      return stats;
    }
    out_.amax = options_.amax.value_or(stats.amax);
    if (spec_.block.is_whole()) std::ranges::fill(block_amax_, out_.amax);
    if (is_choice(spec_.scaling) && grid_.block_rows() > 1) choose_scales_of_squares();
    with_codec(spec_.format, out_.amax, spec_.scaling, [&](const auto& codec) { encode(codec, stats); });
    if (options_.telemetry != Telemetry::none) stats.merge(measure(threads_, x_, out_, options_.telemetry));
    return stats;
  }

 private:
  void allocate() {
    out_.spec = spec_;
    out_.rows = x_.rows;
    out_.cols = x_.cols;
    out_.order = options_.order;
    out_.stack.clear();
    const auto reuse = [](Buffer& buffer, std::int64_t bytes) {
      if (!buffer.refit(static_cast<std::size_t>(bytes))) buffer = Buffer(static_cast<std::size_t>(bytes));
    };
    const std::int64_t scale_bytes = spec_.format == Format::fp8 ? sizeof(float) : 1;
    reuse(out_.codes, out_.rows * out_.code_bytes_per_row());
    reuse(out_.scales, out_.scale_rows() * out_.scale_cols() * scale_bytes);

    const bool row_major = out_.order == CodeOrder::row_major;
    code_row_stride_ = row_major ? out_.code_bytes_per_row() : 1;
    code_byte_stride_ = row_major ? 1 : out_.rows;
    scale_row_stride_ = row_major ? out_.scale_cols() : 1;
    scale_col_stride_ = row_major ? 1 : out_.scale_rows();
  }

  /// Fills block_amax_ and returns the tensor's amax. Each unit's maximum is taken while its blocks are in
  /// the cache.
  float find_block_amax() {
    std::vector<float> unit_amax(static_cast<std::size_t>(reader_.units()));
    threads_.parallel_for(reader_.units(), [&](std::int64_t unit) {
      if (spec_.hadamard == 0 && x_.is_row_major())
        x_.dtype == DType::bf16 ? scan_rows<Bf16>(unit) : scan_rows<float>(unit);
      else
        scan_tiles(unit);
      const auto [begin, end] = reader_.extent_of(unit);
      const auto [first, last] = grid_.blocks_between(begin, end);
      unit_amax[static_cast<std::size_t>(unit)] =
          amax_of({block_amax_.data() + first, block_amax_.data() + last});
    });
    return amax_of(unit_amax);
  }

  template <typename T>
  void scan_rows(std::int64_t unit) {
    const auto [begin, end] = reader_.extent_of(unit);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* values = static_cast<const T*>(x_.data) + row * x_.row_stride;
      float* amax = block_amax_.data() + grid_.row(row);
      if (grid_.is_first_row(row)) std::fill_n(amax, grid_.blocks_per_row(), 0.0f);
      switch (grid_.block_cols()) {
        case nvfp4::kBlock:
          update_row_maxima<nvfp4::kBlock>(values, x_.cols, amax);
          break;
        case mxfp4::kBlock:
          update_row_maxima<mxfp4::kBlock>(values, x_.cols, amax);
          break;
        default:
          update_row_maxima<fp8::kBlock>(values, x_.cols, amax);
          break;
      }
    }
  }

  void scan_tiles(std::int64_t unit) {
    reader_.for_each_tile(
        unit,
        [&](const Tile& tile, std::int64_t) {
          for (int first = 0; first < tile.length; first += static_cast<int>(grid_.block_cols()))
            update_block_amax(tile, first);
        },
        1, TransformRounding::later);
  }

  void update_block_amax(const Tile& tile, int first) {
    alignas(64) std::uint32_t largest[kLanes] = {};
    for (int i = first; i < first + static_cast<int>(grid_.block_cols()); ++i)
      for (int lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t bits = magnitude_bits(tile.value[i][lane]);
        largest[lane] = bits > largest[lane] ? bits : largest[lane];
      }
    const int lanes = tile.lanes_with(first, step_);
    const std::int64_t stride = grid_.stride(step_);
    float* amax = block_amax_.data() + grid_.index(tile, first);
    if (grid_.is_first_row(tile.row))
      for (int lane = 0; lane < lanes; ++lane) amax[lane * stride] = 0.0f;
    for (int lane = 0; lane < lanes; ++lane) {
      const float found = from_magnitude_bits(largest[lane]);
      raise(amax[lane * stride], spec_.hadamard > 0 ? round_to_bf16(found) : found);
    }
  }

  /// Non-finite input: no code can stand for it, so the whole tensor decodes to NaN.
  void poison(QuantStats& stats) {
    out_.amax = std::numeric_limits<float>::quiet_NaN();
    std::ranges::fill(out_.codes.span<std::uint8_t>(), std::uint8_t{0});
    with_codec(spec_.format, out_.amax, spec_.scaling, [&](const auto& codec) {
      using Codec = std::remove_cvref_t<decltype(codec)>;
      std::ranges::fill(out_.scales.span<typename Codec::Stored>(), Codec::kPoison);
    });
    for (std::int64_t unit = 0; unit < reader_.units(); ++unit)
      reader_.for_each_tile(unit, [&](const Tile& tile, std::int64_t) {
        for (int i = 0; i < tile.length; ++i)
          for (const float value : tile.value[i])
            stats.non_finite += magnitude_bits(value) >= kInfinityBits ? 1 : 0;
      });
  }

  /// Errors of all candidates are summed along each row of a block, then over its rows in order.
  void choose_scales_of_squares() {
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(out_.amax, spec_.scaling);
    const int candidates = nvfp4::candidates_of(spec_.scaling);
    std::vector<float> errors(block_amax_.size() * static_cast<std::size_t>(candidates));
    threads_.parallel_for(reader_.units(), [&](std::int64_t unit) {
      reader_.for_each_tile(
          unit,
          [&](const Tile& tile, std::int64_t) {
            for (int first = 0; first < tile.length; first += nvfp4::kBlock)
              add_squared_errors(tensor, tile, first, errors);
          },
          1, TransformRounding::finite);
    });
    chosen_.resize(block_amax_.size());
    for (std::size_t block = 0; block < chosen_.size(); ++block) {
      int best = 0;
      for (int i = 1; i < candidates; ++i)
        if (errors[place_of(i, block)] < errors[place_of(best, block)]) best = i;
      chosen_[block] = nvfp4::candidates_for(block_amax_[block], tensor).byte(best);
    }
  }

  std::size_t place_of(int candidate, std::size_t block) const {
    return static_cast<std::size_t>(candidate) * block_amax_.size() + block;
  }

  void add_squared_errors(const nvfp4::TensorScale& tensor, const Tile& tile, int first,
                          std::vector<float>& errors) const {
    alignas(64) float amax[kLanes];
    gather<float>(block_amax_, tile, first, 0.0f, amax);
    const LaneCandidates candidates(amax, tensor);
    const int lanes = tile.lanes_with(first, step_);
    for (int i = 0; i < nvfp4::candidates_of(spec_.scaling); ++i) {
      alignas(64) float sum[kLanes];
      store_lanes(LaneCandidate(candidates, tensor, i).squared_errors(tile, first, tensor), sum);
      float* out = errors.data() + place_of(i, static_cast<std::size_t>(grid_.index(tile, first)));
      for (int lane = 0; lane < lanes; ++lane) out[lane * grid_.stride(step_)] += sum[lane];
    }
  }

  /// What is known of each lane's block; `absent` in lanes outside the matrix.
  template <typename T>
  void gather(std::span<const T> blocks, const Tile& tile, int first, T absent, T (&out)[kLanes]) const {
    const int lanes = tile.lanes_with(first, step_);
    const std::int64_t stride = grid_.stride(step_);
    const T* in = blocks.data() + grid_.index(tile, first);
    if (lanes == kLanes && stride == 1) {
      std::memcpy(out, in, sizeof(out));
      return;
    }
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = lane < lanes ? in[lane * stride] : absent;
  }

  template <typename Codec>
  void encode(const Codec& codec, QuantStats& stats) {
    std::vector<QuantStats> parts(static_cast<std::size_t>(reader_.units()));
    threads_.parallel_for(reader_.units(), [&](std::int64_t unit) {
      parts[static_cast<std::size_t>(unit)] = encode_unit(codec, unit);
    });
    for (const QuantStats& part : parts) stats.merge(part);
    if (spec_.block.is_whole()) *out_.scales.as<float>() = fp8::block_scale(out_.amax).decode;
  }

  template <typename Codec>
  QuantStats encode_unit(const Codec& codec, std::int64_t unit) {
    QuantStats stats;
    LaneStats lane_stats;
    LaneScales<Codec> scales;
    LaneCodes<Codec> codes;
    CorrectedScales corrected;
    reader_.for_each_tile(
        unit,
        [&](const Tile& tile, std::int64_t index) {
          if constexpr (std::is_same_v<Codec, Nvfp4Codec>)
            if (spec_.scaling == Scaling::eden)
              corrected.find(
                  tile, codec.tensor,
                  [&](int first, float(&amax)[kLanes]) {
                    gather<float>(block_amax_, tile, first, 0.0f, amax);
                  },
                  random_, random_group(tile, 0), random_group_step());
          const bool measure = options_.telemetry == Telemetry::full ||
                               (options_.telemetry == Telemetry::sampled && index % kSampleEvery == 0);
          for (int first = 0; first < tile.length; first += kChunk) {
            if (first % Codec::kBlock == 0) make_scales(codec, tile, first, corrected, scales, lane_stats);
            cast(tile, first, scales, codes);
            const int lanes = tile.lanes_with(first, step_);
            store_codes(codes, lanes, code_address(tile, first), code_byte_stride_, code_lane_stride());
            if (measure) count_saturated<Codec>(tile, first, scales, lane_stats);
          }
        },
        1, TransformRounding::finite);
    // Neighbouring rows of one block are one block.
    const int lanes_with_own_block = step_.rows > 0 && grid_.block_rows() > 1 ? 1 : kLanes;
    for (int lane = 0; lane < lanes_with_own_block; ++lane)
      stats.zero_scale_blocks += lane_stats.zero_scales[lane];
    stats.saturated = lane_stats.saturated;
    return stats;
  }

  template <typename Codec>
  void cast(const Tile& tile, int first, const LaneScales<Codec>& scales, LaneCodes<Codec>& codes) const {
    LaneRandom random;
    if (spec_.rounding == Rounding::nearest) {
      encode_chunk<Codec, false>(tile, first, scales, random, StochasticBias::centred, codes);
      return;
    }
    random.draw(random_, random_group(tile, first), random_group_step());
    const bool centred = spec_.rounding == Rounding::stochastic;
    encode_chunk<Codec, true>(tile, first, scales, random,
                              centred ? StochasticBias::centred : StochasticBias::hardware, codes);
  }

  std::int64_t total_cols() const {
    return options_.part.total_cols > 0 ? options_.part.total_cols : x_.cols;
  }
  /// Which sixteen of the whole tensor's elements the chunk at `first` is in lane 0; and from lane to lane.
  std::uint32_t random_group(const Tile& tile, int first) const {
    const PartOfTensor& part = options_.part;
    const std::int64_t element =
        (part.first_row + tile.row) * total_cols() + part.first_col + tile.col + first;
    return static_cast<std::uint32_t>(element / RandomStream::kGroup);
  }
  std::uint32_t random_group_step() const {
    return static_cast<std::uint32_t>((step_.rows * total_cols() + step_.cols) / RandomStream::kGroup);
  }

  template <typename Codec>
  void make_scales(const Codec& codec, const Tile& tile, int first, const CorrectedScales& corrected,
                   LaneScales<Codec>& scales, LaneStats& stats) {
    alignas(64) float amax[kLanes];
    gather<float>(block_amax_, tile, first, 0.0f, amax);
    if (depends_on_values(spec_.scaling)) {
      if constexpr (std::is_same_v<Codec, Nvfp4Codec>) {
        if (is_choice(spec_.scaling)) take_choice(codec, tile, first, amax, scales);
        if (spec_.scaling == Scaling::eden) {
          const std::uint32_t* byte = corrected.byte[first / nvfp4::kBlock];
          for (int lane = 0; lane < kLanes; ++lane)
            scales.put(lane, codec.corrected_scale(amax[lane], byte[lane]));
        }
      }
    } else {
      for (int lane = 0; lane < kLanes; ++lane) scales.put(lane, codec.scale(amax[lane]));
    }
    if (spec_.block.is_whole()) return;
    store_scales(tile, first, scales);
    if (!grid_.is_first_row(tile.row)) return;  // a block is counted with its first row
    for (int lane = 0; lane < kLanes; ++lane)
      stats.zero_scales[lane] +=
          static_cast<std::int32_t>((amax[lane] > 0.0f) & (scales.value[lane] == 0.0f));
  }

  /// Blocks within a row are chosen for here, with their values at hand; square ones have been.
  void take_choice(const Nvfp4Codec& codec, const Tile& tile, int first, const float (&amax)[kLanes],
                   LaneScales<Nvfp4Codec>& scales) const {
    alignas(64) std::uint32_t byte[kLanes];
    if (grid_.block_rows() > 1)
      gather<std::uint32_t>(chosen_, tile, first, 0, byte);
    else
      std::ranges::copy(choose_scales(tile, first, amax, codec.tensor, spec_.scaling).byte, byte);
    for (int lane = 0; lane < kLanes; ++lane) scales.put(lane, codec.scale_of_byte(byte[lane]));
  }

  template <typename Codec>
  void store_scales(const Tile& tile, int first, const LaneScales<Codec>& scales) {
    std::int64_t row = tile.row;
    int lanes = tile.lanes_with(first, step_);
    if (spec_.format == Format::fp8 && grid_.block_rows() > 1) {  // stored once per block, by its first row
      if (!grid_.is_first_row(row)) return;
      row = grid_.block_row(row);
      if (step_.rows > 0) lanes = std::min(lanes, 1);
    }
    const std::int64_t stride =
        step_.rows * scale_row_stride_ + grid_.block_col(step_.cols) * scale_col_stride_;
    auto* out = out_.scales.as<typename Codec::Stored>() + row * scale_row_stride_ +
                grid_.block_col(tile.col + first) * scale_col_stride_;
    if (lanes == kLanes && stride == 1) {
      typename Codec::Stored stored[kLanes];
      for (int lane = 0; lane < kLanes; ++lane)
        stored[lane] = static_cast<typename Codec::Stored>(scales.stored[lane]);
      std::memcpy(out, stored, sizeof(stored));
      return;
    }
    for (int lane = 0; lane < lanes; ++lane)
      out[lane * stride] = static_cast<typename Codec::Stored>(scales.stored[lane]);
  }

  /// Code bytes of `cols` columns.
  std::int64_t bytes_of(std::int64_t cols) const { return spec_.format == Format::fp8 ? cols : cols / 2; }

  std::uint8_t* code_address(const Tile& tile, int first) const {
    return out_.codes.as<std::uint8_t>() + tile.row * code_row_stride_ +
           bytes_of(tile.col + first) * code_byte_stride_;
  }
  std::int64_t code_lane_stride() const {
    return step_.rows * code_row_stride_ + bytes_of(step_.cols) * code_byte_stride_;
  }

  Threads& threads_;
  MatrixView x_;
  const QuantSpec& spec_;
  const QuantizeOptions& options_;
  RandomStream random_;
  QuantizedTensor& out_;
  BlockGrid grid_;
  TileReader reader_;
  LaneStep step_;
  std::span<float> block_amax_;        //!< in the grid's order
  std::vector<std::uint32_t> chosen_;  //!< likewise: scale bytes; empty unless those of squares are chosen
  std::int64_t code_row_stride_ = 0, code_byte_stride_ = 0;
  std::int64_t scale_row_stride_ = 0, scale_col_stride_ = 0;
};

}  // namespace

QuantStats quantize(Threads& threads, const MatrixView& x, const QuantSpec& spec,
                    const QuantizeOptions& options, QuantizedTensor& out) {
  const MatrixView consumed = spec.axis == 0 ? x.transposed() : x;
  validate(spec, consumed.rows, consumed.cols, "quantize");
  const PartOfTensor& part = options.part;
  TETRAD_CHECK(part.first_col % RandomStream::kGroup == 0 && part.total_cols % RandomStream::kGroup == 0,
               "a part of a tensor must begin at a column that is a multiple of 16, not at {} of {}",
               part.first_col, part.total_cols);
  return Quantizer(threads, consumed, spec, options, out).run();
}

}  // namespace tetrad::cpu
