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

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

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
    choose(blas, problem);
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
  const Plan& plan = plan_for(device.blas(), problem);
  check(cublasLtMatmul(device.blas(), plan.description.get(), alpha, b.data, plan.first.get(), a.data,
                       plan.second.get(), beta, out.data, plan.out.get(), out.data, plan.out.get(),
                       &plan.algorithm, device.scratch(Device::blas_workspace, kWorkspace), kWorkspace,
                       device.stream()));
}

}  // namespace tetrad::cuda
