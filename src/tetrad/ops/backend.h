// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one interface through which everything above reaches the hardware. A backend implements all
// operations of ops/; one that cannot throws at start-up, and nothing falls back silently.

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/core/memory_reader.h"
#include "tetrad/core/tensor.h"
#include "tetrad/core/threads.h"
#include "tetrad/ops/activation.h"
#include "tetrad/ops/adamw.h"
#include "tetrad/ops/amax.h"
#include "tetrad/ops/attention.h"
#include "tetrad/ops/centring.h"
#include "tetrad/ops/deviation.h"
#include "tetrad/ops/elementwise.h"
#include "tetrad/ops/embedding.h"
#include "tetrad/ops/gemm.h"
#include "tetrad/ops/loss.h"
#include "tetrad/ops/mamba2.h"
#include "tetrad/ops/norm.h"
#include "tetrad/ops/ordered_sum.h"
#include "tetrad/ops/quantize.h"
#include "tetrad/ops/rope.h"
#include "tetrad/ops/timeline.h"

namespace tetrad {

/// One of several forms that a matrix is quantized into.
struct QuantizeTask {
  const QuantSpec& spec;
  const QuantizeOptions& options;
  QuantizedTensor& out;
};

/// Copies that may be under way beside operations, each in a lane of its own.
inline constexpr int kCopyLanes = 3;

/// A line of `tetrad info`.
struct Property {
  std::string name;
  std::string value;
};

/// A context: hardware, memory, and everything that operations keep between calls. There may be several in a
/// process, on the same hardware or not, and they know nothing of each other; each is used by one thread at a
/// time.
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
  /// What the bits of results depend on besides what the operations are given (docs/numerics.md): where all
  /// of it is the same, so are they.
  virtual std::vector<Property> bits_depend_on() const { return {{"backend", std::string(name())}}; }

  /// Which device of this machine it is; empty where memory and operations are the program's own.
  virtual std::string device_id() const { return {}; }
  /// A backend that chooses kernels by their speed takes what `folder` says of them, and adds what it
  /// chooses: all ranks of a run, and whoever goes on with it, then have the same kernels. Any number of
  /// processes may have the folder.
  virtual void keep_choices_in(const std::filesystem::path& /*folder*/) {}
  /// Where operations wait for their turn, a cudaStream_t, for libraries that put theirs between them; null
  /// where an operation is done when it returns.
  virtual void* stream() const { return nullptr; }

  /// For work on the program's side that belongs to this context. Idle while an operation runs.
  virtual Threads& threads() = 0;

  /// Memory that the operations below can use, and that nobody else may touch: it may be a device's. Every
  /// pointer of an operation points into such memory, except where its header says otherwise.
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// Memory of the machine, filled with zeros, that operations reach over the bus of a device: more room,
  /// less speed. For what the header of an operation names. Where there is no device, it is as good as any.
  /// Throws Error (failure) where there is not enough.
  virtual Buffer allocate_on_host(std::size_t bytes) {
    Buffer memory = allocate(bytes);
    set_to_zero(memory.span<std::byte>());
    return memory;
  }
  virtual void set_to_zero(std::span<std::byte> memory) = 0;
  /// Copies within the backend's memory.
  virtual void copy(std::span<const std::byte> from, std::span<std::byte> to) = 0;
  /// Copies between memory of the device and of the host while operations that follow run: it begins when
  /// those before it are done, and after the copies before it in this lane. What follows join_lane() finds it
  /// done; until then nobody may write to either side, or read what is written.
  virtual void copy_in_lane(std::size_t /*lane*/, std::span<const std::byte> from, std::span<std::byte> to) {
    copy(from, to);
  }
  virtual void join_lane(std::size_t /*lane*/) {}
  /// Copies from the program's memory; `from` may be reused on return.
  virtual void upload(std::span<const std::byte> from, std::span<std::byte> to) = 0;
  /// The bytes where the program can read them: as they lie, or copied into `copy`. Waits for operations
  /// under way.
  virtual std::span<const std::byte> readable(std::span<const std::byte> memory, Buffer& copy) = 0;
  /// Copies to the program's memory. Waits for operations under way.
  void download(std::span<const std::byte> from, std::span<std::byte> to) {
    Buffer copy;
    const std::span<const std::byte> bytes = readable(from, copy);
    std::copy(bytes.begin(), bytes.end(), to.begin());
  }
  /// Reads memory as the operations that are under way now leave it. Another thread may use it while this
  /// one computes, as long as nothing writes to what is read; it must not outlive the context.
  virtual std::unique_ptr<MemoryReader> make_reader() = 0;
  /// Waits for operations under way.
  virtual void synchronize() = 0;
  /// Times operations. Must not outlive the context.
  virtual std::unique_ptr<Timeline> make_timeline() { return std::make_unique<HostTimeline>(); }
  /// Names what follows, up to end_range(), for the profiler of a device. Ranges lie within each other.
  virtual void begin_range(const std::string& /*name*/) {}
  virtual void end_range() {}
  /// Runs `work`, whose operations neither allocate nor download, into a record instead of on the device; the
  /// result replays it at the cost of one launch. Nothing where operations are not launched.
  virtual std::function<void()> record(const std::function<void()>& /*work*/) { return {}; }
  /// The most memory, in bytes, that the operations have had: the process's, or the device's.
  virtual std::int64_t peak_memory() const = 0;
  /// Where memory is a device's: gives back what operations hold for themselves and begins a new peak.
  /// Returns what is still allocated, in bytes.
  virtual std::optional<std::int64_t> restart_peak() { return std::nullopt; }
  /// Bytes that the device, or the machine, has free, with what operations hold for themselves; nothing where
  /// nobody says.
  virtual std::optional<std::int64_t> free_memory() const { return std::nullopt; }
  /// Bytes that allocate_on_host() could give; nothing where nobody says, or where it takes from the same.
  virtual std::optional<std::int64_t> free_host_memory() const { return std::nullopt; }
  /// What the hardware has used, in joules since some fixed moment; nothing where it does not say.
  virtual std::optional<double> energy() const { return std::nullopt; }
  /// Share of the last moments in which a device worked; nothing where it does not say.
  virtual std::optional<double> busy() const { return std::nullopt; }

  Tensor make_tensor(DType dtype, std::int64_t rows, std::int64_t cols) {
    return Tensor(allocate(static_cast<std::size_t>(rows * cols * bits_of(dtype) / 8)), dtype, rows, cols);
  }

  /// The order of codes in which the products of this backend read an operand at the least cost.
  virtual CodeOrder preferred_order(const QuantSpec& spec) const {
    return spec.axis == 0 ? CodeOrder::col_major : CodeOrder::row_major;
  }

  /// Whether quantize() and gemm() take several tensors in one matrix (QuantizeOptions::stack).
  virtual bool has_stacks() const { return false; }

  /// Quantizes x (f32 or BF16) into `out`, whose buffers are reused when they fit. Without telemetry a device
  /// reports nothing: it would have to be waited for.
  virtual QuantStats quantize(const MatrixView& x, const QuantSpec& spec, const QuantizeOptions& options,
                              QuantizedTensor& out) = 0;

  /// Two forms of one matrix: the same as quantize() for each, but a backend may read x once.
  virtual std::array<QuantStats, 2> quantize(const MatrixView& x, const QuantizeTask& first,
                                             const QuantizeTask& second) {
    return {quantize(x, first.spec, first.options, first.out),
            quantize(x, second.spec, second.options, second.out)};
  }

  /// Decodes to f32 or BF16, [rows, cols] as quantized (of the transformed tensor if there was a transform).
  virtual void dequantize(const QuantizedTensor& tensor, const MutableMatrixView& out) = 0;

  /// out[M,N] (f32 or BF16) = a[M,K] . b[N,K]^T; `Accumulate::yes` adds into an f32 out.
  virtual void gemm(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
                    Accumulate accumulate = Accumulate::no) = 0;

  /// Packs the second operand of products, which have the same results with it (GemmOperand::with). False:
  /// they read operands as they are.
  virtual bool pack(const GemmOperand& /*b*/, PackedOperand& /*out*/) { return false; }

  // Each is described by its arguments, in the header of its name.
  virtual void embedding(const EmbeddingForward& op) = 0;
  virtual void embedding(const EmbeddingBackward& op) = 0;
  virtual void rms_norm(const RmsNormForward& op) = 0;
  virtual void rms_norm(const RmsNormBackward& op) = 0;
  virtual void gated_norm(const GatedNormForward& op) = 0;
  virtual void gated_norm(const GatedNormBackward& op) = 0;
  virtual void rope(const Rope& op) = 0;
  virtual void attention(const AttentionForward& op) = 0;
  virtual void attention(const AttentionBackward& op) = 0;
  virtual void attention(const AttentionDecode& op) = 0;
  /// From now on, for measurements that compare. False where these kernels are not there for the shape:
  /// nothing changes.
  virtual bool use_attention_engine(AttentionEngine engine, const AttentionShape& /*shape*/) {
    return engine == AttentionEngine::best;
  }
  virtual void causal_conv(const CausalConvForward& op) = 0;
  virtual void causal_conv(const CausalConvBackward& op) = 0;
  virtual void scan(const ScanForward& op) = 0;
  virtual void scan(const ScanBackward& op) = 0;
  virtual void mamba2_step(const Mamba2Step& op) = 0;
  virtual void activation(const ActivationForward& op) = 0;
  virtual void activation(const ActivationBackward& op) = 0;
  virtual void add(const Add& op) = 0;
  virtual void cast(const Cast& op) = 0;
  virtual void column_sums(const ColumnSums& op) = 0;
  virtual void centre(const Centre& op) = 0;
  virtual void add_row(const AddRow& op) = 0;
  virtual void add_outer(const AddOuter& op) = 0;
  virtual void cross_entropy(const CrossEntropy& op) = 0;
  virtual void ordered_sum(const OrderedSum& op) = 0;
  virtual void adamw(const AdamWStep& op) = 0;
  /// From now on, for measurements that compare. False where the device is the host: nothing changes.
  virtual bool use_host_moments(HostMoments /*access*/) { return false; }

  /// Sum of squares of each tensor's gradient, in f64; infinity or NaN if one of its elements is not finite.
  virtual std::vector<double> squared_norms(std::span<const AdamWTensor> tensors) = 0;

  virtual void amaxes(const Amaxes& op) = 0;

  /// Deviations from references, by tensor; adds each tensor's to its `sum`.
  virtual std::vector<DeviationSums> deviations(std::span<const DeviationTensor> tensors) = 0;
};

struct CpuOptions {
  int threads = 0;              //!< 0: default_thread_count()
  std::string instruction_set;  //!< empty: TETRAD_CPU, or the best that this processor has
};

/// The CPU: always there.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

struct CudaOptions {
  int device = 0;
  void* stream = nullptr;  //!< a cudaStream_t; null: one of its own
  int threads = 0;         //!< of the host; 0: default_thread_count()
  bool tune = true;        //!< false: no kernels are timed, for use inside other frameworks
  bool native = true;      //!< false: the matrix units for narrow formats are not used; operands are expanded
};

/// A CUDA device. Throws Error that says why where there is none, or where the build has no CUDA. Not to be
/// kept in a static object: when those are destroyed, CUDA's libraries may be gone.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});

}  // namespace tetrad
