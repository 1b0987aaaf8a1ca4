#pragma once
// A model as GGUF describes it: names, metadata, the order of rows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/interchange/gguf_file.h"
#include "tetrad/interchange/tensor_map.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

/// "model.layers.3.self_attn.q_proj.weight" is "blk.3.attn_q.weight". Throws Error (failure) for a name that
/// is not of tensor_map().
std::string gguf_name(const std::string& hf_name);

/// Where a tensor has another shape than on our side, with the same elements.
std::vector<std::int64_t> gguf_shape(const MappedParameter& parameter, const Piece& piece,
                                     const ModelConfig& model);

/// The row of ours that lies at `row` there. llama.cpp turns neighbours (2i, 2i+1) of a head, we turn halves
/// (i, i + dim/2), so Llama's queries and keys are reordered.
std::int64_t gguf_source_row(const Piece& piece, const ModelConfig& model, std::int64_t row);

/// general.*, the sizes, and what is needed to read our own files back.
GgufMetadata gguf_metadata(const ModelConfig& model, Family family, std::int64_t context, bool has_nvfp4);

/// tokenizer.*; a tokenizer is only ever a byte-level BPE, or bytes, or none.
GgufMetadata gguf_tokenizer(const Tokenizer* tokenizer);

/// The tokenizer.json of what is there; empty if it is no byte-level BPE with a split that we have.
std::string gguf_tokenizer_json(const GgufFile& file);

/// What frequencies are divided by: the tensor rope_freqs.weight. Empty: by nothing.
std::vector<float> gguf_rope_factors(const ModelConfig& model);

struct GgufDescription {
  ModelConfig model;
  std::int64_t context = 0;
  std::string tokenizer_json;  //!< empty: none that we read
};

/// Throws Error (bad input) for an architecture or a value that we do not have.
GgufDescription read_gguf_description(const GgufFile& file);

}  // namespace tetrad
