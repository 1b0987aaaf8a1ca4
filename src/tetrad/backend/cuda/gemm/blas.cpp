// SPDX-License-Identifier: Apache-2.0
// cuBLASLt thinks in columns: a row-major matrix is, to it, the transposed one. So out^T[N,M] = b . a^T is
// asked for.

#include "tetrad/backend/cuda/gemm/blas.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tetrad/backend/cuda/common/blas_error.h"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/backend/cuda/gemm/algorithm_cache.h"
#include "tetrad/core/error.h"

namespace tetrad::cuda {
namespace {

constexpr auto kWorkspace = static_cast<std::size_t>(kProductWorkspace);
constexpr std::uint32_t kMaxAlignment = 256;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f4:
      return CUDA_R_4F_E2M1;
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
  std::size_t bytes() const { return static_cast<std::size_t>(cols * stride * bits_of(dtype) / 8); }
  auto key() const { return std::tie(dtype, rows, cols, stride, alignment); }
  bool operator<(const Columns& other) const { return key() < other.key(); }
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

cublasLtMatmulMatrixScale_t mode_of(ScaleMode scaling) {
  switch (scaling) {
    case ScaleMode::vec128_f32:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case ScaleMode::block128_f32:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case ScaleMode::vec16_e4m3:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
    case ScaleMode::none:
      break;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

/// What decides about the kernel.
struct Problem {
  Columns a, b, out;  //!< named as the caller does
  bool a_row_major, b_row_major;
  ScaleMode a_scaling = ScaleMode::none;  //!< both are scaled or neither is
  ScaleMode b_scaling = ScaleMode::none;
  bool is_scaled() const { return a_scaling != ScaleMode::none; }
  std::int64_t depth() const { return a_row_major ? a.rows : a.cols; }
  auto key() const { return std::tie(a, b, out, a_row_major, b_row_major, a_scaling, b_scaling); }
  bool operator<(const Problem& other) const { return key() < other.key(); }
};

template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T value) const {
    destroy(value);
  }
};
template <typename T, auto destroy>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroy<destroy>>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Description = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

Layout make_layout(const Columns& columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(columns.dtype), static_cast<std::uint64_t>(columns.rows),
                                   static_cast<std::uint64_t>(columns.cols), columns.stride));
  return Layout(layout);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event));
  return Event(event);
}

std::string name_of(const Columns& columns) {
  return fmt::format("{}:{}x{}:{}:{}", name_of(columns.dtype), columns.rows, columns.cols, columns.stride,
                     columns.alignment);
}
/// One word for each problem.
std::string name_of(const Problem& problem) {
  const auto operand = [](const Columns& columns, bool row_major, ScaleMode scaling) {
    return name_of(columns) + (row_major ? "r" : "c") + (scaling == ScaleMode::block128_f32 ? "s" : "");
  };
  return operand(problem.a, problem.a_row_major, problem.a_scaling) + "," +
         operand(problem.b, problem.b_row_major, problem.b_scaling) + "," + name_of(problem.out);
}

/// The addresses of one product.
struct Arguments {
  const void* a;
  const void* b;
  void* out;
  const float* alpha;
  const float* beta;
  const void* a_scales = nullptr;  //!< in a scaled problem, like the next
  const void* b_scales = nullptr;
};

/// A product that is ready to run.
class Plan {
 public:
  /// Chooses a kernel by timing it on the arguments, unless the choice is known.
  Plan(Device& device, AlgorithmCache& cache, const Problem& problem, const Arguments& arguments)
      : first_(make_layout(problem.b)),
        second_(make_layout(problem.a)),
        out_(make_layout(problem.out)),
        scaled_(problem.is_scaled()) {
    cublasLtMatmulDesc_t created = nullptr;
    check(cublasLtMatmulDescCreate(&created, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    description_.reset(created);
    set(CUBLASLT_MATMUL_DESC_TRANSA, problem.b_row_major ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, problem.a_row_major ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    if (scaled_) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(problem.b_scaling));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(problem.a_scaling));
      set_scales(arguments);
    }
    choose(device, cache, problem, arguments);
  }

  /// False where cuBLASLt has no kernel.
  [[nodiscard]] bool run(Device& device, const Arguments& arguments) const {
    if (!algorithm_) return false;
    if (scaled_) set_scales(arguments);
    check(multiply(device, arguments, *algorithm_));
    return true;
  }

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) const {
    check(cublasLtMatmulDescSetAttribute(description_.get(), attribute, &value, sizeof(value)));
  }
  void set_scales(const Arguments& arguments) const {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, arguments.b_scales);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, arguments.a_scales);
  }

  cublasStatus_t multiply(Device& device, const Arguments& arguments,
                          const cublasLtMatmulAlgo_t& algorithm) const {
    return cublasLtMatmul(device.blas(), description_.get(), arguments.alpha, arguments.b, first_.get(),
                          arguments.a, second_.get(), arguments.beta, arguments.out, out_.get(),
                          arguments.out, out_.get(), &algorithm,
                          device.scratch(Device::blas_workspace, kWorkspace), kWorkspace, device.stream());
  }

  std::vector<cublasLtMatmulAlgo_t> candidates(Device& device, const Problem& problem) const {
    cublasLtMatmulPreference_t created = nullptr;
    check(cublasLtMatmulPreferenceCreate(&created));
    const Preference preference(created);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(created, attribute, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.b.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.a.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.out.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.out.alignment);
    constexpr int kCandidates = 32;
    cublasLtMatmulHeuristicResult_t found[kCandidates] = {};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(device.blas(), description_.get(), first_.get(), second_.get(),
                                       out_.get(), out_.get(), created, kCandidates, found, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    check(status);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found[i].algo);
    return algorithms;
  }

  void choose(Device& device, AlgorithmCache& cache, const Problem& problem, const Arguments& arguments) {
    const std::vector<cublasLtMatmulAlgo_t> algorithms = candidates(device, problem);
    if (algorithms.empty()) return;
    algorithm_ = algorithms.front();
    constexpr double kWorthTiming = 1e9;  // multiplications: about a microsecond's work
    if (static_cast<double>(problem.out.rows) * static_cast<double>(problem.out.cols) *
            static_cast<double>(problem.depth()) <
        kWorthTiming)
      return;
    if (!device.tunes()) return;
    algorithm_ = cache.find_or_choose(name_of(problem),
                                      [&] { return fastest(device, problem, arguments, algorithms); });
  }

  /// The first that is clearly faster than those before it: cuBLASLt's own order is a good guess.
  cublasLtMatmulAlgo_t fastest(Device& device, const Problem& problem, Arguments arguments,
                               const std::vector<cublasLtMatmulAlgo_t>& algorithms) const {
    constexpr float kClearly = 0.985f;
    // What the caller's output holds may be part of the result: then somewhere else.
    Buffer out;
    if (arguments.beta != device.zero()) {
      out = device.allocate(problem.out.bytes());
      arguments.out = out.data();
    }
    cublasLtMatmulAlgo_t best = algorithms.front();
    float best_time = std::numeric_limits<float>::infinity();
    for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
      if (multiply(device, arguments, algorithm) != CUBLAS_STATUS_SUCCESS) continue;
      constexpr int kRepeats = 5;
      const float time = milliseconds(device, [&] {
        for (int i = 0; i < kRepeats; ++i) check(multiply(device, arguments, algorithm));
      });
      if (time >= best_time * kClearly) continue;
      best = algorithm;
      best_time = time;
    }
    return best;
  }

  template <typename Work>
  static float milliseconds(Device& device, const Work& work) {
    const Event begin = make_event();
    const Event end = make_event();
    check(cudaEventRecord(begin.get(), device.stream()));
    work();
    check(cudaEventRecord(end.get(), device.stream()));
    check(cudaEventSynchronize(end.get()));
    float time = 0;
    check(cudaEventElapsedTime(&time, begin.get(), end.get()));
    return time;
  }

  Layout first_, second_, out_;  //!< in cuBLASLt's order: b, a, out
  bool scaled_;
  Description description_;
  std::optional<cublasLtMatmulAlgo_t> algorithm_;  //!< none: cuBLASLt has no kernel
};

/// What a context keeps of its products.
class Plans {
 public:
  explicit Plans(const Device& device)
      : cache_(fmt::format("{}-{}-cublasLt{}", device.properties().name, device.multiprocessors(),
                           cublasLtGetVersion())) {}

  const Plan& plan(Device& device, const Problem& problem, const Arguments& arguments) {
    auto found = plans_.find(problem);
    if (found == plans_.end()) found = plans_.try_emplace(problem, device, cache_, problem, arguments).first;
    return found->second;
  }

  void keep_choices_in(const std::filesystem::path& folder) {
    cache_.keep_in(folder);
    plans_.clear();  // what was chosen without it
  }

 private:
  AlgorithmCache cache_;
  std::map<Problem, Plan> plans_;
};

bool run(Device& device, const Problem& problem, const Arguments& arguments) {
  return device.kept<Plans>().plan(device, problem, arguments).run(device, arguments);
}

}  // namespace

void multiply(Device& device, const MatrixView& a, const MatrixView& b, const MutableMatrixView& out,
              const float* alpha, const float* beta) {
  const Problem problem{columns_of(a), columns_of(b), columns_of(out), a.is_row_major(), b.is_row_major()};
  TETRAD_CHECK(run(device, problem, {a.data, b.data, out.data, alpha, beta}),
               "cuBLASLt has no kernel for a product {}", name_of(problem));
}

bool multiply(Device& device, const ScaledOperands& operands, const MutableMatrixView& out,
              const float* alpha, const float* beta) {
  const auto& [a, b] = operands;
  const auto columns = [](const ScaledOperand& operand) {
    return Columns{operand.dtype, operand.depth, operand.rows, operand.depth, alignment_of(operand.codes)};
  };
  const Problem problem{columns(a), columns(b), columns_of(out), true, true, a.scaling, b.scaling};
  return run(device, problem, {a.codes, b.codes, out.data, alpha, beta, a.scales, b.scales});
}

void keep_choices_in(Device& device, const std::filesystem::path& folder) {
  device.kept<Plans>().keep_choices_in(folder);
}

}  // namespace tetrad::cuda
