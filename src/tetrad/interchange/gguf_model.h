// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model as GGUF describes it: shapes, metadata, the order of rows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/interchange/gguf_file.h"
#include "tetrad/interchange/tensor_map.h"

namespace tetrad {

/// The name of the factor that the values of an NVFP4 tensor are multiplied with: "blk.3.attn_q.scale".
std::string gguf_scale_name(const std::string& tensor);

/// What frequencies of positions are divided by (gguf_rope_factors).
inline constexpr const char* kGgufRopeFactors = "rope_freqs.weight";

/// The shape that llama.cpp wants, of the same elements in the same order.
std::vector<std::int64_t> gguf_shape(const Piece& piece, const ModelConfig& model);

/// Whether llama.cpp has A = -exp(A_log), where we have A_log.
bool gguf_has_negative_exponential(const Piece& piece);

/// The row of ours that lies at `row` there. llama.cpp turns neighbours (2i, 2i+1) of Llama's heads, we turn
/// halves (i, i + dim/2) as it does with Qwen3's, so Llama's queries and keys are reordered.
std::int64_t gguf_source_row(const Piece& piece, const ModelConfig& model, std::int64_t row);

/// general.*, the sizes, and what is needed to read our own files back. Throws Error (bad input) for what
/// llama.cpp does not have.
GgufMetadata gguf_metadata(const ModelConfig& model, Family family, std::int64_t context, bool has_nvfp4);

/// What frequencies are divided by. Empty: by nothing.
std::vector<float> gguf_rope_factors(const ModelConfig& model);

/// A valid model, with what is known about its texts. Throws Error (bad input) for an architecture or a value
/// that we do not have.
ModelConfig read_gguf_model_config(const GgufHeader& header);

}  // namespace tetrad
