// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/weight_shards.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace tetrad {
namespace {

/// A matrix of so many rows as a product consumes it.
struct Consumed {
  std::int64_t rows, cols;
};
Consumed consumed(const QuantSpec& spec, std::int64_t rows, std::int64_t cols) {
  return spec.axis == 0 ? Consumed{cols, rows} : Consumed{rows, cols};
}

/// The parts of ranks that lie one after the other.
PartsOfRanks parts_of(std::span<std::byte> whole, std::span<const std::size_t> sizes) {
  PartsOfRanks parts;
  for (const std::size_t size : sizes) {
    parts.push_back(whole.first(size));
    whole = whole.subspan(size);
  }
  return parts;
}

void fit(Backend& backend, std::int64_t bytes, Buffer& buffer) {
  if (buffer.refit(static_cast<std::size_t>(bytes))) return;
  buffer = {};  // first: both need not fit
  buffer = backend.allocate(static_cast<std::size_t>(bytes));
}

}  // namespace

void WeightShards::share(Parameter& matrix) {
  matrix.shards = this;
  matrix.band = own_band(matrix.pieces);
  if (matrix.is_linear) matrices_.push_back(&matrix);
}

PassingForm& WeightShards::passing_form(std::int64_t block, std::size_t place, Operand operand) {
  const std::size_t turn = static_cast<std::size_t>(block) % kFormTurns;
  return passing_[(turn * 2 + place) * 2 + (operand == Operand::dgrad_w ? 1 : 0)];
}

std::vector<RowBand> WeightShards::bands(const Parameter& matrix) const {
  return bands_of_pieces(matrix.pieces, ranks_.size());
}

RowBand WeightShards::own_band(std::span<const RowBand> pieces) const {
  return bands_of_pieces(pieces, ranks_.size())[static_cast<std::size_t>(ranks_.rank())];
}

std::uint64_t WeightShards::start_values(const Parameter& matrix, DType type, Tensor& whole) {
  if (!whole.refit(type, matrix.rows(), matrix.cols())) {
    whole = {};  // first: both need not fit
    whole = backend_.make_tensor(type, matrix.rows(), matrix.cols());
  }
  const std::size_t row = whole.bytes().size() / static_cast<std::size_t>(matrix.rows());
  std::vector<std::size_t> sizes;
  for (const RowBand& band : bands(matrix)) sizes.push_back(static_cast<std::size_t>(band.count) * row);
  PartsOfRanks parts = parts_of(whole.bytes(), sizes);
  if (matrix.band.count > 0) {
    if (type == DType::f32)
      backend_.copy(matrix.value.bytes(), parts[static_cast<std::size_t>(ranks_.rank())]);
    else
      backend_.cast({matrix.value.const_view(), rows(whole.view(), matrix.band.first, matrix.band.count)});
  }
  return routes_.start_gather({std::move(parts)});
}

void WeightShards::gather_values(const Parameter& matrix, DType type, Tensor& whole) {
  wait(start_values(matrix, type, whole));
}

MatrixView WeightShards::masters(const Parameter& matrix) {
  gather_values(matrix, DType::f32, masters_);
  return masters_.const_view();
}

bool WeightShards::codes_can_travel(const QuantSpec& spec, const Parameter& matrix) const {
  const bool along_rows = spec.axis == 0;
  // In the other order the codes of a band do not lie together.
  const bool by_bands = (backend_.preferred_order(spec) == CodeOrder::col_major) == along_rows;
  if (!by_bands || !bands_have_codes_of_whole(spec)) return false;
  const std::int64_t block = along_rows ? spec.block.cols : spec.block.rows;
  return std::ranges::all_of(
      matrix.pieces, [&](const RowBand& piece) { return piece.count == 0 || piece.first % block == 0; });
}

float WeightShards::amax_of(const Parameter& matrix) {
  if (amax_version_ != matrix.version) {
    std::vector<Amaxes::Tensor> bands;
    for (const Parameter* each : matrices_) bands.push_back({each->value.f32(), each->value.size()});
    std::vector<std::uint32_t> bits(bands.size());
    fit(backend_, std::ssize(bits) * static_cast<std::int64_t>(sizeof(std::uint32_t)), bits_);
    backend_.amaxes({bands, bits_.as<std::uint32_t>()});
    ranks_.max_u32(bits_.span<std::uint32_t>());
    backend_.download(bits_.span<std::byte>(), std::as_writable_bytes(std::span(bits)));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const auto amax = std::bit_cast<float>(bits[i]);
      // As quantizers say that something is not finite.
      amaxes_[matrices_[i]] = std::isfinite(amax) ? amax : std::numeric_limits<float>::quiet_NaN();
    }
    amax_version_ = matrix.version;
  }
  return amaxes_.at(&matrix);
}

std::uint64_t WeightShards::start_form(const FormCall& op, WeightForm& form) {
  const std::optional<QuantSpec> spec = op.call.spec(op.operand);
  if (!spec) {
    form.codes = {};
    return start_values(op.matrix, op.storage, form.dense);
  }
  form.dense = {};
  if (op.by_values || !codes_can_travel(*spec, op.matrix)) {
    linear_weight(op.call, op.operand, masters(op.matrix), op.storage, form, Form::packed);
    return 0;
  }
  WeightForm& band = op.band != nullptr ? *op.band : band_form_;
  if (op.band == nullptr || band.codes.rows == 0) quantize_band(op, *spec, band);
  return start_codes(op, *spec, band.codes, form.codes);
}

void WeightShards::quantize_band(const FormCall& op, const QuantSpec& spec, WeightForm& band) {
  LinearParts parts;
  OperandPart& part = parts[static_cast<std::size_t>(op.operand)];
  part.part = spec.axis == 0 ? PartOfTensor{0, op.matrix.band.first, op.matrix.rows()}
                             : PartOfTensor{op.matrix.band.first, 0, op.matrix.cols()};
  part.amax = amax_of(op.matrix);
  LinearCall call = op.call;
  call.parts = &parts;
  call.stats = nullptr;
  call.telemetry = Telemetry::none;
  if (op.matrix.band.count > 0)
    linear_weight(call, op.operand, op.matrix.value.const_view(), op.storage, band, Form::packed);
}

std::uint64_t WeightShards::start_codes(const FormCall& op, const QuantSpec& spec, QuantizedTensor& band,
                                        QuantizedTensor& whole) {
  const Parameter& matrix = op.matrix;
  const Consumed shape = consumed(spec, matrix.rows(), matrix.cols());
  const PackedSize size = packed_size(spec, shape.rows, shape.cols);
  whole.spec = spec;
  whole.rows = shape.rows;
  whole.cols = shape.cols;
  whole.order = backend_.preferred_order(spec);
  whole.form = Form::packed;
  whole.amax = amax_of(matrix);
  fit(backend_, size.codes, whole.codes);
  fit(backend_, size.scales, whole.scales);
  fit(backend_, sizeof(float), whole.device_amax);
  backend_.upload(std::as_bytes(std::span(&whole.amax, 1)), whole.device_amax.span<std::byte>());
  std::vector<std::size_t> codes;
  std::vector<std::size_t> scales;
  for (const RowBand& rows : bands(matrix)) {
    const Consumed of_rank = consumed(spec, rows.count, matrix.cols());
    const PackedSize part = rows.count > 0 ? packed_size(spec, of_rank.rows, of_rank.cols) : PackedSize{};
    codes.push_back(static_cast<std::size_t>(part.codes));
    scales.push_back(static_cast<std::size_t>(part.scales));
  }
  std::vector<PartsOfRanks> both = {parts_of(whole.codes.span<std::byte>(), codes),
                                    parts_of(whole.scales.span<std::byte>(), scales)};
  const auto rank = static_cast<std::size_t>(ranks_.rank());
  if (matrix.band.count > 0) {
    backend_.copy(band.codes.span<std::byte>().first(codes[rank]), both[0][rank]);
    backend_.copy(band.scales.span<std::byte>().first(scales[rank]), both[1][rank]);
  }
  return routes_.start_gather(std::move(both));
}

}  // namespace tetrad
