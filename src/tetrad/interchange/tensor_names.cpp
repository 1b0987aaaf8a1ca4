// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/tensor_names.h"

#include <algorithm>
#include <array>
#include <span>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

struct Row {
  char letter;  //!< of the block; 0: outside of blocks
  std::string_view parameter, part;
  std::string_view hf, gguf;
};

constexpr auto kLlama = std::to_array<Row>({
    {0, "embedding.weight", "", "model.embed_tokens.weight", "token_embd.weight"},
    {0, "norm.weight", "", "model.norm.weight", "output_norm.weight"},
    {0, "head.weight", "", "lm_head.weight", "output.weight"},
    {'*', "norm.weight", "", "input_layernorm.weight", "attn_norm.weight"},
    {'*', "qkv.weight", "q", "self_attn.q_proj.weight", "attn_q.weight"},
    {'*', "qkv.weight", "k", "self_attn.k_proj.weight", "attn_k.weight"},
    {'*', "qkv.weight", "v", "self_attn.v_proj.weight", "attn_v.weight"},
    {'*', "out.weight", "", "self_attn.o_proj.weight", "attn_output.weight"},
    {'*', "q_norm.weight", "", "self_attn.q_norm.weight", "attn_q_norm.weight"},  // Qwen3's, like the next
    {'*', "k_norm.weight", "", "self_attn.k_norm.weight", "attn_k_norm.weight"},
    {'-', "norm.weight", "", "post_attention_layernorm.weight", "ffn_norm.weight"},
    {'-', "up.weight", "gate", "mlp.gate_proj.weight", "ffn_gate.weight"},
    {'-', "up.weight", "up", "mlp.up_proj.weight", "ffn_up.weight"},
    {'-', "down.weight", "", "mlp.down_proj.weight", "ffn_down.weight"},
});

constexpr auto kNemotronH = std::to_array<Row>({
    {0, "embedding.weight", "", "backbone.embeddings.weight", "token_embd.weight"},
    {0, "norm.weight", "", "backbone.norm_f.weight", "output_norm.weight"},
    {0, "head.weight", "", "lm_head.weight", "output.weight"},
    {'*', "norm.weight", "", "norm.weight", "attn_norm.weight"},
    {'*', "qkv.weight", "q", "mixer.q_proj.weight", "attn_q.weight"},
    {'*', "qkv.weight", "k", "mixer.k_proj.weight", "attn_k.weight"},
    {'*', "qkv.weight", "v", "mixer.v_proj.weight", "attn_v.weight"},
    {'*', "out.weight", "", "mixer.o_proj.weight", "attn_output.weight"},
    {'-', "norm.weight", "", "norm.weight", "attn_norm.weight"},
    {'-', "up.weight", "", "mixer.up_proj.weight", "ffn_up.weight"},
    {'-', "down.weight", "", "mixer.down_proj.weight", "ffn_down.weight"},
    {'M', "norm.weight", "", "norm.weight", "attn_norm.weight"},
    {'M', "in.weight", "", "mixer.in_proj.weight", "ssm_in.weight"},
    {'M', "conv.weight", "", "mixer.conv1d.weight", "ssm_conv1d.weight"},
    {'M', "conv.bias", "", "mixer.conv1d.bias", "ssm_conv1d.bias"},
    {'M', "a_log", "", "mixer.A_log", "ssm_a"},
    {'M', "d", "", "mixer.D", "ssm_d"},
    {'M', "dt_bias", "", "mixer.dt_bias", "ssm_dt.bias"},
    {'M', "gated_norm.weight", "", "mixer.norm.weight", "ssm_norm.weight"},
    {'M', "out.weight", "", "mixer.out_proj.weight", "ssm_out.weight"},
});

const Row& find_row(Family family, char letter, std::string_view parameter, std::string_view part) {
  const auto rows =
      has_paired_blocks(family) ? std::span<const Row>(kLlama) : std::span<const Row>(kNemotronH);
  const auto found = std::ranges::find_if(rows, [&](const Row& row) {
    return row.letter == letter && row.parameter == parameter && row.part == part;
  });
  if (found == rows.end())
    throw Error(
        fmt::format("the parameter {} {} has no name in other formats; this is a bug", parameter, part),
        ExitCode::failure);
  return *found;
}

}  // namespace

TensorNames names_outside(Family family, std::string_view parameter) {
  const Row& row = find_row(family, 0, parameter, "");
  return {std::string(row.hf), std::string(row.gguf)};
}

TensorNames names_in_block(Family family, std::int64_t block, char letter, std::string_view parameter,
                           std::string_view part) {
  const Row& row = find_row(family, letter, parameter, part);
  const bool is_paired = has_paired_blocks(family);
  const std::int64_t layer = is_paired ? block / 2 : block;
  return {fmt::format("{}.layers.{}.{}", is_paired ? "model" : "backbone", layer, row.hf),
          fmt::format("blk.{}.{}", layer, row.gguf)};
}

}  // namespace tetrad
