// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/weight_shards.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tetrad {
namespace {

constexpr std::int64_t kCollectedAtOnce = std::int64_t{64} << 20;  // bytes

/// A matrix of so many rows as a product consumes it.
struct Consumed {
  std::int64_t rows, cols;
};
Consumed consumed(const QuantSpec& spec, std::int64_t rows, std::int64_t cols) {
  return spec.axis == 0 ? Consumed{cols, rows} : Consumed{rows, cols};
}

/// What all ranks have, one after the other.
Gather gather_of(std::span<const std::byte> own, std::span<const std::size_t> sizes,
                 std::span<std::byte> whole) {
  Gather gather{own, {}};
  for (const std::size_t size : sizes) {
    gather.receive.push_back(whole.first(size));
    whole = whole.subspan(size);
  }
  return gather;
}

void fit(Backend& backend, std::int64_t bytes, Buffer& buffer) {
  if (buffer.refit(static_cast<std::size_t>(bytes))) return;
  buffer = {};  // first: both need not fit
  buffer = backend.allocate(static_cast<std::size_t>(bytes));
}

}  // namespace

std::vector<RowBand> WeightShards::bands(const Parameter& matrix) const {
  return bands_of_pieces(matrix.pieces, ranks_.size());
}

RowBand WeightShards::own_band(std::span<const RowBand> pieces) const {
  return bands_of_pieces(pieces, ranks_.size())[static_cast<std::size_t>(ranks_.rank())];
}

void WeightShards::gather_values(const Parameter& matrix, DType type, Tensor& whole) {
  if (whole.dtype() != type || whole.size() != matrix.gradient.size()) {
    whole = {};  // first: both need not fit
    whole = backend_.make_tensor(type, matrix.rows(), matrix.cols());
  }
  const std::size_t row = whole.bytes().size() / static_cast<std::size_t>(matrix.rows());
  const auto bytes_of = [&](const RowBand& band) { return static_cast<std::size_t>(band.count) * row; };
  const std::span<std::byte> own =
      whole.bytes().subspan(static_cast<std::size_t>(matrix.band.first) * row, bytes_of(matrix.band));
  if (matrix.band.count > 0) {
    if (type == DType::f32)
      backend_.copy(matrix.value.bytes(), own);
    else
      backend_.cast({matrix.value.const_view(), rows(whole.view(), matrix.band.first, matrix.band.count)});
  }
  std::vector<std::size_t> sizes;
  for (const RowBand& band : bands(matrix)) sizes.push_back(bytes_of(band));
  ranks_.gather(gather_of(own, sizes, whole.bytes()));
}

MatrixView WeightShards::masters(const Parameter& matrix) {
  gather_values(matrix, DType::f32, masters_);
  return masters_.const_view();
}

bool WeightShards::codes_can_travel(const QuantSpec& spec, const Parameter& matrix) const {
  const bool along_rows = spec.axis == 0;
  // In the other order the codes of a band do not lie together; the amax of a band is that of a transform.
  const bool by_bands = (backend_.preferred_order(spec) == CodeOrder::col_major) == along_rows;
  if (!by_bands || spec.block.is_whole() || spec.hadamard > 0) return false;
  const std::int64_t block = along_rows ? spec.block.cols : spec.block.rows;
  return std::ranges::all_of(
      matrix.pieces, [&](const RowBand& piece) { return piece.count == 0 || piece.first % block == 0; });
}

float WeightShards::largest(float magnitude) {
  fit(backend_, sizeof(std::uint32_t), magnitude_);
  backend_.upload(std::as_bytes(std::span(&magnitude, 1)), magnitude_.span<std::byte>());
  ranks_.max_u32(magnitude_.span<std::uint32_t>());
  backend_.download(magnitude_.span<std::byte>(), std::as_writable_bytes(std::span(&magnitude, 1)));
  return magnitude;
}

void WeightShards::make_form(const LinearCall& call, Operand operand, const Parameter& matrix, DType storage,
                             bool by_values, WeightForm& form) {
  const std::optional<QuantSpec> spec = call.spec(operand);
  if (!spec) {
    form.codes = {};
    return gather_values(matrix, storage, form.dense);
  }
  form.dense = {};
  if (by_values || !codes_can_travel(*spec, matrix)) {
    linear_weight(call, operand, masters(matrix), storage, form, Form::packed);
    return;
  }

  // The band's amax first: all bands are scaled by that of the whole.
  LinearParts parts;
  OperandPart& part = parts[static_cast<std::size_t>(operand)];
  part.part = spec->axis == 0 ? PartOfTensor{0, matrix.band.first, matrix.rows()}
                              : PartOfTensor{matrix.band.first, 0, matrix.cols()};
  LinearStats stats;
  LinearCall of_band = call;
  of_band.parts = &parts;
  of_band.stats = &stats;
  of_band.telemetry = Telemetry::sampled;
  const auto quantize_band = [&] {
    if (matrix.band.count > 0)
      linear_weight(of_band, operand, matrix.value.const_view(), storage, band_form_, Form::packed);
  };
  quantize_band();
  const std::optional<QuantStats>& own = stats[static_cast<std::size_t>(operand)];
  part.amax = largest(own ? own->amax : 0);
  of_band.stats = nullptr;
  of_band.telemetry = Telemetry::none;
  quantize_band();

  const Consumed shape = consumed(*spec, matrix.rows(), matrix.cols());
  const PackedSize size = packed_size(*spec, shape.rows, shape.cols);
  QuantizedTensor& whole = form.codes;
  whole.spec = *spec;
  whole.rows = shape.rows;
  whole.cols = shape.cols;
  whole.order = backend_.preferred_order(*spec);
  whole.form = Form::packed;
  whole.amax = *part.amax;
  fit(backend_, size.codes, whole.codes);
  fit(backend_, size.scales, whole.scales);
  fit(backend_, sizeof(float), whole.device_amax);
  backend_.upload(std::as_bytes(std::span(&whole.amax, 1)), whole.device_amax.span<std::byte>());
  std::vector<std::size_t> codes;
  std::vector<std::size_t> scales;
  for (const RowBand& band : bands(matrix)) {
    const Consumed of_rank = consumed(*spec, band.count, matrix.cols());
    const PackedSize part_size =
        band.count > 0 ? packed_size(*spec, of_rank.rows, of_rank.cols) : PackedSize{};
    codes.push_back(static_cast<std::size_t>(part_size.codes));
    scales.push_back(static_cast<std::size_t>(part_size.scales));
  }
  const auto rank = static_cast<std::size_t>(ranks_.rank());
  const std::array both = {gather_of(band_form_.codes.codes.span<std::byte>().first(codes[rank]), codes,
                                     whole.codes.span<std::byte>()),
                           gather_of(band_form_.codes.scales.span<std::byte>().first(scales[rank]), scales,
                                     whole.scales.span<std::byte>())};
  ranks_.wait(ranks_.start_gather(both));
}

void WeightShards::collect(const Parameter& matrix, const Tensor& own, std::span<std::byte> whole) {
  const std::vector<RowBand> all = bands(matrix);
  const auto row = static_cast<std::size_t>(matrix.cols() * bits_of(own.dtype()) / 8);
  const auto row_of_each = static_cast<std::int64_t>(all.size() * row);
  const std::int64_t at_once = std::max<std::int64_t>(1, kCollectedAtOnce / row_of_each);  // rows
  const bool is_first = ranks_.rank() == 0;
  if (is_first) fit(backend_, row_of_each * at_once, staging_);
  const std::int64_t most = std::ranges::max(all, {}, &RowBand::count).count;
  for (std::int64_t done = 0; done < most; done += at_once) {
    // Rows of a band that travel now, as bytes from its beginning.
    const auto travelling = [&](const RowBand& band) {
      const std::int64_t count = std::clamp<std::int64_t>(band.count - done, 0, at_once);
      return std::pair(static_cast<std::size_t>(std::min(done, band.count)) * row,
                       static_cast<std::size_t>(count) * row);
    };
    Exchange exchange{std::vector<std::span<const std::byte>>(all.size()),
                      std::vector<std::span<std::byte>>(all.size())};
    const auto [first, size] = travelling(matrix.band);
    exchange.send[0] = own.bytes().subspan(first, size);
    for (std::size_t rank = 0; is_first && rank < all.size(); ++rank)
      exchange.receive[rank] = staging_.span<std::byte>().subspan(
          rank * static_cast<std::size_t>(at_once) * row, travelling(all[rank]).second);
    ranks_.exchange(exchange);
    for (std::size_t rank = 0; is_first && rank < all.size(); ++rank) {
      const auto [offset, bytes] = travelling(all[rank]);
      const std::size_t place = static_cast<std::size_t>(all[rank].first) * row + offset;
      if (bytes > 0) backend_.download(exchange.receive[rank], whole.subspan(place, bytes));
    }
  }
}

}  // namespace tetrad
