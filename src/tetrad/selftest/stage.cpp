// SPDX-License-Identifier: Apache-2.0
#include "tetrad/selftest/stage.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tetrad/numerics/philox.h"

namespace tetrad::selftest {
namespace {

constexpr std::byte kPoison{0xFF};
constexpr std::size_t kSlack =
    256;  //!< the last line of a matrix has a stride too, and libraries may read it
constexpr std::uint64_t kSeed = 0x7e57;

std::vector<std::byte> down(Backend& backend, std::span<const std::byte> memory) {
  std::vector<std::byte> bytes(memory.size());
  backend.download(memory, bytes);
  return bytes;
}

/// The sum of four uniform numbers: near normal, and exact, so that it is the same wherever it is computed.
double near_normal(std::uint32_t draw, std::uint32_t place) {
  const PhiloxWords words = RandomStream{.seed = kSeed, .tensor = draw}.group(place);
  double sum = -2;
  for (const std::uint32_t word : words) sum += word * 0x1p-32;
  return sum * 1.7320508;  // the deviation of the sum is 1/sqrt(3)
}

}  // namespace

Matrix::Matrix(Backend& backend, Storage storage, std::int64_t rows, std::int64_t cols)
    : backend_(backend),
      dtype_(storage.dtype),
      rows_(rows),
      cols_(cols),
      stride_(cols + (storage.odd ? 8 : 0)),
      first_(storage.odd ? 5 : 0),
      host_(static_cast<std::size_t>(rows * stride_ * bits_of(dtype_) / 8)),
      device_(backend.allocate(host_.size() + kSlack)) {
  std::ranges::fill(host_.span<std::byte>(), kPoison);
  upload();
}

MutableMatrixView Matrix::view_in(std::byte* memory) const {
  return {memory + first_ * bits_of(dtype_) / 8, dtype_, rows_, cols_, stride_, 1};
}

void Matrix::upload() const { backend_.upload(host_.span<std::byte>(), device_.span<std::byte>()); }

Result Matrix::download(const std::string& name, double tolerance) const {
  return {name, dtype_, stride_, tolerance, down(backend_, {device_.data(), host_.size()})};
}

Matrix& Stage::add(Storage storage, std::int64_t rows, std::int64_t cols) {
  return matrices_.emplace_back(backend_, storage, rows, cols);
}

void Stage::fill(Matrix& matrix, double deviation, double mean) {
  const std::uint32_t draw = draws_++;
  const MutableMatrixView view = matrix.host();
  for (std::int64_t r = 0; r < view.rows; ++r)
    for (std::int64_t c = 0; c < view.cols; ++c) {
      const auto place = static_cast<std::uint32_t>(r * view.cols + c);
      const auto value = static_cast<float>(mean + deviation * near_normal(draw, place));
      const std::int64_t at = r * view.row_stride + c;
      if (view.dtype == DType::f32)
        static_cast<float*>(view.data)[at] = value;
      else
        static_cast<Bf16*>(view.data)[at] = Bf16::from_f32(value);
    }
  matrix.upload();
}

Matrix& Stage::draw(std::int64_t rows, std::int64_t cols, double deviation, double mean) {
  Matrix& matrix = add(storage_, rows, cols);
  fill(matrix, deviation, mean);
  return matrix;
}

Matrix& Stage::draw_f32(std::int64_t count, double deviation, double mean) {
  return draw_f32(1, count, deviation, mean);
}

Matrix& Stage::draw_f32(std::int64_t rows, std::int64_t cols, double deviation, double mean) {
  Matrix& matrix = add({.dtype = DType::f32}, rows, cols);
  fill(matrix, deviation, mean);
  return matrix;
}

Matrix& Stage::integers(std::span<const std::int32_t> values) {
  Matrix& matrix = add({.dtype = DType::i32}, 1, static_cast<std::int64_t>(values.size()));
  std::ranges::copy(values, matrix.host_i32());
  matrix.upload();
  return matrix;
}

Matrix& Stage::draw_integers(std::int64_t count, std::int32_t end) {
  const std::uint32_t draw = draws_++;
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const PhiloxWords words =
        RandomStream{.seed = kSeed, .tensor = draw}.group(static_cast<std::uint32_t>(i));
    values[i] = static_cast<std::int32_t>(words[0] % static_cast<std::uint32_t>(end));
  }
  return integers(values);
}

Matrix& Stage::documents(std::int64_t batch, std::int64_t sequence) {
  constexpr std::array<std::int64_t, 8> kLengths = {3, 61, 1, 63, 130, 2, 40, 7};
  std::vector<std::int32_t> starts;
  std::size_t document = 0;
  for (std::int64_t i = 0; i < batch; ++i)
    for (std::int64_t start = 0; start < sequence;) {
      const std::int64_t length = std::min(kLengths[document++ % kLengths.size()], sequence - start);
      starts.insert(starts.end(), static_cast<std::size_t>(length), static_cast<std::int32_t>(start));
      start += length;
    }
  return integers(starts);
}

Matrix& Stage::blank(std::int64_t rows, std::int64_t cols) { return add(storage_, rows, cols); }
Matrix& Stage::blank_f32(std::int64_t count) { return add({.dtype = DType::f32}, 1, count); }

const QuantizedTensor& Stage::quantized(const Matrix& x, const QuantSpec& spec, CodeOrder order) {
  QuantizedTensor made;
  reference_.quantize(x.host_view(), spec, {.order = order, .telemetry = Telemetry::none}, made);
  const auto up = [&](std::span<const std::byte> bytes) {
    Buffer buffer = backend_.allocate(bytes.size());
    backend_.upload(bytes, buffer.span<std::byte>());
    return buffer;
  };
  QuantizedTensor& tensor = tensors_.emplace_back();
  tensor.spec = made.spec;
  tensor.rows = made.rows;
  tensor.cols = made.cols;
  tensor.order = made.order;
  tensor.form = made.form;
  tensor.amax = made.amax;
  tensor.codes = up(made.codes.span<std::byte>());
  tensor.scales = up(made.scales.span<std::byte>());
  tensor.device_amax = up(std::as_bytes(std::span(&made.amax, 1)));
  return tensor;
}

Matrix& Stage::result(const std::string& name, std::int64_t rows, std::int64_t cols, double tolerance) {
  return changed(name, blank(rows, cols), tolerance);
}

Matrix& Stage::result_f32(const std::string& name, std::int64_t count, double tolerance) {
  return result_f32(name, 1, count, tolerance);
}

Matrix& Stage::result_f32(const std::string& name, std::int64_t rows, std::int64_t cols, double tolerance) {
  return changed(name, add({.dtype = DType::f32}, rows, cols), tolerance);
}

Matrix& Stage::changed(const std::string& name, Matrix& matrix, double tolerance) {
  watched_.push_back({name, &matrix, tolerance});
  return matrix;
}

Buffer Stage::poisoned(std::int64_t bytes) {
  const std::vector<std::byte> ones(static_cast<std::size_t>(bytes), kPoison);
  Buffer buffer = backend_.allocate(ones.size());
  backend_.upload(ones, buffer.span<std::byte>());
  return buffer;
}

QuantizedTensor& Stage::poisoned_tensor(std::int64_t rows, std::int64_t cols) {
  QuantizedTensor& tensor = tensors_.emplace_back();
  tensor.codes = poisoned(rows * cols * 2);  // BF16 values are the largest form
  tensor.scales = poisoned(rows * (cols / RandomStream::kGroup + 1) * 4);
  return tensor;
}

QuantizedTensor& Stage::quantized_result(std::int64_t rows, std::int64_t cols) {
  QuantizedTensor& tensor = poisoned_tensor(rows, cols);
  watched_tensors_.push_back(&tensor);
  return tensor;
}

void Stage::note(const std::string& name, const std::vector<double>& numbers, double tolerance) {
  Result result{name, DType::f64, static_cast<std::int64_t>(numbers.size()), tolerance};
  result.bytes.resize(numbers.size() * sizeof(double));
  std::memcpy(result.bytes.data(), numbers.data(), result.bytes.size());
  note(std::move(result));
}

std::vector<Result> Stage::results() {
  std::vector<Result> results = std::move(notes_);
  for (const Watched& watched : watched_)
    results.push_back(watched.matrix->download(watched.name, watched.tolerance));
  for (const QuantizedTensor* tensor : watched_tensors_) {
    const bool row_major = tensor->order == CodeOrder::row_major;
    results.push_back({"codes", DType::u8, row_major ? tensor->code_bytes_per_row() : tensor->rows,
                       kSameBytes, down(backend_, tensor->codes.span<std::byte>())});
    results.push_back({"scales", tensor->spec.format == Format::fp8 ? DType::f32 : DType::u8,
                       row_major ? tensor->scale_cols() : tensor->scale_rows(), kSameBytes,
                       down(backend_, tensor->scales.span<std::byte>())});
    const auto on_device = down(backend_, tensor->device_amax.span<std::byte>());
    const auto here = std::as_bytes(std::span(&tensor->amax, 1));
    results.push_back({"amax", DType::f32, 1, kSameBytes,
                       on_device.empty() ? std::vector<std::byte>(here.begin(), here.end()) : on_device});
  }
  return results;
}

}  // namespace tetrad::selftest
