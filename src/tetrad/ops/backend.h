#pragma once
// The one interface through which everything above reaches the hardware. A backend implements every operation
// of ops/; one that cannot throws at start-up, and nothing falls back silently.

#include <string>
#include <string_view>
#include <vector>

#include "tetrad/ops/gemm.h"
#include "tetrad/ops/quantize.h"

namespace tetrad {

/// A line of `tetrad info`.
struct Property {
  std::string name;
  std::string value;
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  /// The hardware and the libraries behind this backend.
  virtual std::vector<Property> properties() const = 0;
  /// Which kernel serves each operation.
  virtual std::vector<Property> kernels() const = 0;

  /// Quantizes x (f32 or BF16) into `out`, whose buffers are reused when they fit.
  virtual QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                              QuantizedTensor& out) = 0;

  /// Decodes to f32 or BF16, [rows, cols] as quantized (of the transformed tensor if there was a transform).
  virtual void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) = 0;

  /// out[M,N] (f32 or BF16) = a[M,K] . b[N,K]^T; `Accumulate::yes` adds into an f32 out.
  virtual void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
                    Accumulate accumulate = Accumulate::no) = 0;
};

/// The CPU: always there.
Backend& cpu_backend();

/// A CUDA device. Throws Error that says why where there is none, or where the build has no CUDA.
Backend& cuda_backend();

}  // namespace tetrad
