#include <cblas.h>

#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cpu/gemm.h"
#include "tetrad/backend/cpu/quantize.h"
#include "tetrad/ops/backend.h"

namespace tetrad {
namespace {

class CpuBackend final : public Backend {
 public:
  // Threads are ours: every SGEMM is one tile on one thread.
  CpuBackend() { openblas_set_num_threads(1); }

  std::string_view name() const override { return "cpu"; }

  std::vector<KernelInfo> kernels() const override {
    return {{"quantize", "16-lane tiles, two passes (compiler SIMD)"},
            {"dequantize", "compiler SIMD"},
            {"gemm", "exact decode to f32, OpenBLAS SGEMM tiles"}};
  }

  QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                      QuantizedTensor& out) override {
    return cpu::quantize(x, spec, options, out);
  }

  void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) override {
    cpu::dequantize(tensor, out);
  }

  void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out, Accumulate accumulate) override {
    cpu::gemm(a, b, out, accumulate);
  }
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

}  // namespace tetrad
