// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where one check runs on one backend: its inputs, the same on every backend, and its results.

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tetrad/ops/backend.h"
#include "tetrad/selftest/result.h"

namespace tetrad::selftest {

/// How the matrices of a check lie in memory.
struct Storage {
  DType dtype = DType::bf16;
  bool odd = false;  //!< columns 5 … of a matrix that is 8 wider, so that nothing is aligned
};

/// A matrix in the program's memory and in that of the backend under test.
class Matrix {
 public:
  Matrix(Backend& backend, Storage storage, std::int64_t rows, std::int64_t cols);

  // The backend's.
  MatrixView view() const { return as_const(view_in(device_.data())); }
  MutableMatrixView out() const { return view_in(device_.data()); }
  float* f32() const { return static_cast<float*>(out().data); }
  const std::int32_t* i32() const { return static_cast<const std::int32_t*>(out().data); }

  // The program's, which the reference reads and writes.
  MutableMatrixView host() const { return view_in(host_.data()); }
  MatrixView host_view() const { return as_const(host()); }
  float* host_f32() const { return static_cast<float*>(host().data); }
  std::int32_t* host_i32() const { return static_cast<std::int32_t*>(host().data); }

  void upload() const;
  Result download(const std::string& name, double tolerance) const;

 private:
  MutableMatrixView view_in(std::byte* memory) const;

  Backend& backend_;
  DType dtype_;
  std::int64_t rows_, cols_, stride_, first_;
  mutable Buffer host_, device_;  //!< whoever has the matrix may write its elements
};

class Stage {
 public:
  /// `reference` is a CPU, whose memory is the program's: it prepares inputs that operations made.
  Stage(Backend& backend, Backend& reference, Storage storage)
      : backend_(backend), reference_(reference), storage_(storage) {}

  Backend& backend() { return backend_; }
  Backend& reference() { return reference_; }
  DType dtype() const { return storage_.dtype; }

  // Inputs. Numbers are near normal, with a mean and a deviation, and follow from their place among all that
  // a check draws.
  Matrix& draw(std::int64_t rows, std::int64_t cols, double deviation = 1, double mean = 0);
  Matrix& draw_f32(std::int64_t count, double deviation = 1, double mean = 0);
  Matrix& draw_f32(std::int64_t rows, std::int64_t cols, double deviation, double mean);
  Matrix& integers(std::span<const std::int32_t> values);
  /// Whole numbers from 0 to end - 1.
  Matrix& draw_integers(std::int64_t count, std::int32_t end);
  /// Where documents begin that are packed into sequences (ops/documents.h): of one token, shorter and longer
  /// than a tile of 64.
  Matrix& documents(std::int64_t batch, std::int64_t sequence);
  /// For the reference to fill, and then to be uploaded.
  Matrix& blank(std::int64_t rows, std::int64_t cols);
  Matrix& blank_f32(std::int64_t count);
  /// x as the reference quantizes it.
  const QuantizedTensor& quantized(const Matrix& x, const QuantSpec& spec, CodeOrder order);

  // Results. All memory is full of ones before: NaN, and no scale.
  Matrix& result(const std::string& name, std::int64_t rows, std::int64_t cols, double tolerance);
  Matrix& result_f32(const std::string& name, std::int64_t count, double tolerance);
  Matrix& result_f32(const std::string& name, std::int64_t rows, std::int64_t cols, double tolerance);
  /// A drawn matrix that the operation changes.
  Matrix& changed(const std::string& name, Matrix& matrix, double tolerance);
  /// With memory for a [rows, cols] matrix in any form. The codes are compared as they lie.
  QuantizedTensor& quantized_result(std::int64_t rows, std::int64_t cols);
  /// The same, but not compared: forms differ from backend to backend.
  QuantizedTensor& poisoned_tensor(std::int64_t rows, std::int64_t cols);
  /// What an operation returned.
  void note(const std::string& name, const std::vector<double>& numbers, double tolerance);
  void note(Result result) { notes_.push_back(std::move(result)); }

  /// Of the operation that has run.
  std::vector<Result> results();

 private:
  struct Watched {
    std::string name;
    const Matrix* matrix;
    double tolerance;
  };

  Matrix& add(Storage storage, std::int64_t rows, std::int64_t cols);
  void fill(Matrix& matrix, double deviation, double mean);
  Buffer poisoned(std::int64_t bytes);

  Backend& backend_;
  Backend& reference_;
  Storage storage_;
  std::uint32_t draws_ = 0;
  std::deque<Matrix> matrices_;
  std::deque<QuantizedTensor> tensors_;
  std::vector<Watched> watched_;
  std::vector<const QuantizedTensor*> watched_tensors_;
  std::vector<Result> notes_;
};

}  // namespace tetrad::selftest
