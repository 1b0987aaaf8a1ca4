// cuBLASLt thinks in columns: a row-major matrix is, to it, the transposed one. So out^T[N,M] = b . a^T is
// asked for.

#include "tetrad/backend/cuda/blas.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "tetrad/backend/cuda/error.h"
#include "tetrad/core/error.h"

namespace tetrad::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;
constexpr std::uint32_t kMaxAlignment = 256;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return CUDA_R_8F_E4M3;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

/// The largest power of two that divides an address.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | kMaxAlignment;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// A matrix as cuBLASLt sees it: columns of `rows` elements, `stride` apart.
struct Columns {
  DType dtype;
  std::int64_t rows, cols, stride;
  std::uint32_t alignment;
  auto operator<=>(const Columns&) const = default;
};

template <typename ViewType>
Columns columns_of(const ViewType& view) {
  const bool row_major = view.is_row_major();
  const std::int64_t length = row_major ? view.cols : view.rows;
  const std::int64_t lines = row_major ? view.rows : view.cols;
  const std::int64_t stride = row_major ? view.row_stride : view.col_stride;
  return {view.dtype, length, lines, std::max(stride, length),
          alignment_of(view.data)};  // one line has any stride
}

/// What decides about the kernel.
struct Problem {
  Columns a, b, out;  //!< of the caller's names
  bool a_row_major, b_row_major;
  bool a_square_blocks = false;  //!< FP8: blocks of 128x128 instead of 1x128
  bool b_square_blocks = false;
  bool is_fp8() const { return a.dtype == DType::f8_e4m3; }
  auto operator<=>(const Problem&) const = default;
};

template <typename T, cublasStatus_t (*destroy)(T)>
struct Destroy {
  void operator()(T value) const { destroy(value); }
};
template <typename T, cublasStatus_t (*destroy)(T)>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, destroy>>;
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Description = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

Layout make_layout(const Columns& columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(columns.dtype), static_cast<std::uint64_t>(columns.rows),
                                   static_cast<std::uint64_t>(columns.cols), columns.stride));
  return Layout(layout);
}

/// A product that is ready to run.
struct Plan {
  Description description;
  Layout first, second, out;  //!< in cuBLASLt's order: b, a, out
  cublasLtMatmulAlgo_t algorithm = {};

  Plan(cublasLtHandle_t blas, const Problem& problem)
      : first(make_layout(problem.b)), second(make_layout(problem.a)), out(make_layout(problem.out)) {
    cublasLtMatmulDesc_t created = nullptr;
    check(cublasLtMatmulDescCreate(&created, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    description.reset(created);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      check(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, problem.b_row_major ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, problem.a_row_major ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    if (problem.is_fp8()) {
      const auto mode = [](bool square_blocks) {
        return square_blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                             : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
      };
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode(problem.b_square_blocks));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode(problem.a_square_blocks));
    }
    choose(blas, problem);
  }

  /// In the caller's order.
  void set_scales(const float* a, const float* b) const {
    check(cublasLtMatmulDescSetAttribute(description.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b,
                                         sizeof(b)));
    check(cublasLtMatmulDescSetAttribute(description.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a,
                                         sizeof(a)));
  }

  void run(Device& device, const void* a, const void* b, const MutableMatrixView& out_view,
           const float* alpha, const float* beta) const {
    check(cublasLtMatmul(device.blas(), description.get(), alpha, b, first.get(), a, second.get(), beta,
                         out_view.data, out.get(), out_view.data, out.get(), &algorithm,
                         device.scratch(Device::blas_workspace, kWorkspace), kWorkspace, device.stream()));
  }

 private:
  void choose(cublasLtHandle_t blas, const Problem& problem) {
    cublasLtMatmulPreference_t created = nullptr;
    check(cublasLtMatmulPreferenceCreate(&created));
    const Preference preference(created);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(created, attribute, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.b.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.a.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.out.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.out.alignment);
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(blas, description.get(), first.get(), second.get(), out.get(),
                                         out.get(), created, 1, &found, &count));
    TETRAD_CHECK(count == 1, "cuBLASLt has no kernel for a product [{}, {}] . [{}, {}]", problem.a.rows,
                 problem.a.cols, problem.b.rows, problem.b.cols);
    algorithm = found.algo;
  }
};

const Plan& plan_for(cublasLtHandle_t blas, const Problem& problem) {
  static std::map<Problem, Plan> plans;
  const auto found = plans.find(problem);
  return found != plans.end() ? found->second : plans.try_emplace(problem, blas, problem).first->second;
}

}  // namespace

void multiply(Device& device, const MatrixView& a, const MatrixView& b, const MutableMatrixView& out,
              const float* alpha, const float* beta) {
  const Problem problem{columns_of(a), columns_of(b), columns_of(out), a.is_row_major(), b.is_row_major()};
  plan_for(device.blas(), problem).run(device, a.data, b.data, out, alpha, beta);
}

void multiply(Device& device, const Fp8Operand& a, const Fp8Operand& b, const MutableMatrixView& out,
              const float* alpha, const float* beta) {
  const auto columns = [](const Fp8Operand& operand) {
    return Columns{DType::f8_e4m3, operand.depth, operand.rows, operand.depth, alignment_of(operand.codes)};
  };
  const Problem problem{columns(a), columns(b),      columns_of(out), true,
                        true,       a.square_blocks, b.square_blocks};
  const Plan& plan = plan_for(device.blas(), problem);
  plan.set_scales(a.scales, b.scales);
  plan.run(device, a.codes, b.codes, out, alpha, beta);
}

}  // namespace tetrad::cuda
