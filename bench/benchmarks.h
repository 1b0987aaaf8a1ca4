// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `tetrad bench` measures. Every figure stands beside a ceiling that the same backend reaches in the
// same run.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "measure.h"
#include "tetrad/core/dtype.h"
#include "tetrad/model/config.h"
#include "tetrad/tokenizer/tokenizer.h"
#include "tetrad/train/config.h"

namespace tetrad::bench {

/// Quantizers over a [rows, cols] tensor: bytes read and written per second, beside a copy of the tensor.
void quantize(Backend& backend, std::int64_t rows, std::int64_t cols, DType dtype, int repeats,
              const Report& report);

/// Products of [m, k] and [n, k]: FLOP/s, quantization included or not, beside OpenBLAS SGEMM on the CPU and
/// the BF16 product on a device.
void gemm(Backend& backend, std::int64_t m, std::int64_t n, std::int64_t k, int repeats,
          const Report& report);

/// A linear layer forward and backward: every recipe beside BF16, and BF16 beside its three products alone.
void linear(Backend& backend, std::int64_t tokens, std::int64_t out, std::int64_t in, int repeats,
            const Report& report);

struct AttentionCase {
  std::int64_t batch, heads, kv_heads, sequence, head_dim;
};
/// Attention forward and forward + backward, beside the BF16 product.
void attention(Backend& backend, const AttentionCase& c, int repeats, const Report& report);

struct MambaCase {
  std::int64_t batch, sequence, heads, head_dim, groups, state, chunk;
};
/// The Mamba-2 scan, forward and forward + backward, beside a copy of the bytes that it must read and write.
void mamba(Backend& backend, const MambaCase& c, int repeats, const Report& report);

/// AdamW whose moments, of so many gigabytes, lie on the host: how long it takes to get that memory, and each
/// way to reach it beside a copy.
void moments(Backend& backend, double gigabytes, int repeats, const Report& report);

/// Output head and cross-entropy of [tokens, width] over [vocab, width]: FLOP/s of its products, beside the
/// fastest large one.
void loss(Backend& backend, std::int64_t tokens, std::int64_t vocab, std::int64_t width, int repeats,
          const Report& report);

/// AdamW on so many parameters, with moments in f32 and in BF16, and the norm of the gradients: bytes that
/// must be read and written per second, beside a copy.
void optimizer(Backend& backend, std::int64_t parameters, int repeats, const Report& report);

/// Checkpoints of the configuration's model in a new folder in `parent`, which is removed: writing beside a
/// plain file of the size, and loading beside reading the files.
void checkpoint(Backend& backend, const Config& config, const std::filesystem::path& parent, int repeats,
                const Report& report);

/// Whole optimizer steps of the configuration's model, with its batch, microbatch, sequence and plan of
/// memory: BF16 beside its FLOP at the speed of a large product, every other recipe beside BF16, in turns
/// where both fit into memory, else after it and with the same plan. What is computed again does not count as
/// FLOP.
void step(Backend& backend, const Config& config, const std::vector<std::string>& recipes, int repeats,
          const Report& report);

/// Where the time of such steps goes: milliseconds of each kind of operation beside those of the step,
/// products also beside the fastest large one, and the whole beside steps that nobody watches.
void profile_step(Backend& backend, const Config& config, const std::vector<std::string>& recipes,
                  int repeats, const Report& report);

/// Whole optimizer steps while `loops` other threads keep the CPU busy, beside the same steps alone, in turns
/// of a second each.
void step_beside(Backend& backend, const Config& config, const std::vector<std::string>& recipes, int loops,
                 int repeats, const Report& report);

struct DecodeOptions {
  std::vector<std::string> recipes;
  std::vector<std::int64_t> clients = {1};  //!< at once
  std::int64_t prompt = 16;                 //!< tokens of each
  std::int64_t tokens = 64;                 //!< that each gets
};
/// The engine of `tetrad serve`: tokens per second to so many clients at once, beside as many times what one
/// client gets. Reading the prompts counts.
void decode(Backend& backend, const Config& config, const DecodeOptions& options, int repeats,
            const Report& report);

/// Where the time of that goes, by kind of operation.
void profile_decode(Backend& backend, const Config& config, const DecodeOptions& options,
                    const Report& report);

/// A tokenizer on one thread, one text at a time: bytes of text per second, encoding beside splitting alone
/// and decoding beside a copy.
void tokenizer(const Tokenizer& tokenizer, const std::vector<std::string>& texts, int repeats,
               const Report& report);

/// Size of a square product that runs at full speed.
inline std::int64_t large_edge(const Backend& backend) { return backend.name() == "cpu" ? 1024 : 8192; }

/// Seconds of the product that bounds others: OpenBLAS SGEMM on the CPU (our own f32 product where it is not
/// installed), BF16 on a device; repeated by the caller.
class ReferenceProduct {
 public:
  ReferenceProduct(Backend& backend, std::int64_t m, std::int64_t n, std::int64_t k);
  void operator()();
  double flop() const {
    return 2.0 * static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
  }
  const char* name() const;

 private:
#ifdef TETRAD_OPENBLAS
  void multiply_with_openblas();
#endif
  Backend& backend_;
  std::int64_t m_, n_, k_;
  bool on_cpu_;
  Tensor a_, b_, out_;
};

/// The fastest large product here, a ceiling for everything that is made of products: in f32 by the library,
/// or in BF16. Beside a slower one, a model could use more than all of a processor.
class PeakProduct {
 public:
  explicit PeakProduct(Backend& backend);
  void operator()();
  double flop() const { return library_.flop(); }
  double seconds() const { return seconds_; }  //!< the fastest of a few
  std::int64_t edge() const { return edge_; }
  std::string name() const;

 private:
  Backend& backend_;
  std::int64_t edge_;
  ReferenceProduct library_;
  Tensor a_, b_, out_;
  bool is_own_ = false;
  double seconds_;
};

struct Peak {
  double tflops = 0;
  std::string name;  //!< name of the product
};
/// Speed of the fastest large product.
Peak measure_peak(Backend& backend);

}  // namespace tetrad::bench
