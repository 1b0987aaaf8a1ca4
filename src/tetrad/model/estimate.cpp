#include "tetrad/model/estimate.h"

#include <algorithm>

namespace tetrad {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

/// Elements, per token, that a block keeps in the storage type for its backward pass, besides the inputs of
/// its linear layers.
std::int64_t kept_elements(const ModelConfig& c, char letter) {
  switch (letter) {
    case '*':
      return (2 * c.heads + 2 * c.kv_heads) * c.head_dim;  // q, k, v and the output
    case '-':
      return linear_shapes(c, '-')[0].out;
    default:
      return linear_shapes(c, 'M')[0].out + c.mamba.conv_channels() + c.mamba.inner();
  }
}

/// f32 values per token.
double kept_f32(const ModelConfig& c, char letter) {
  switch (letter) {
    case '*':
      return as_double(c.heads + 1);  // log-sum-exp, inverse RMS
    case '-':
      return 1;
    default:
      return as_double(c.mamba.groups + 1) +
             as_double(c.mamba.inner() * c.mamba.state) / as_double(std::max<std::int64_t>(1, c.mamba.chunk));
  }
}

/// Elements per token of what all blocks share (Scratch): the widest block decides.
struct PassingThrough {
  std::int64_t input = 0;   //!< of a linear layer that does not keep it
  std::int64_t wide = 0;    //!< gradient of a block's first projection
  std::int64_t middle = 0;  //!< gradient of the second projection's input
  std::int64_t scan = 0;    //!< gradient of the scan's output

  std::int64_t elements(std::int64_t hidden) const { return input + wide + middle + scan + 2 * hidden; }
};

double bytes_per_element(const std::optional<QuantSpec>& spec, DType storage) {
  if (!spec) return bits_of(storage) / 8.0;
  switch (spec->format) {
    case Format::nvfp4:
      return 0.5 + 1.0 / 16;
    case Format::mxfp4:
      return 0.5 + 1.0 / 32;
    default:
      return 1 + 4.0 / as_double(std::max<std::int64_t>(1, spec->block.cols));
  }
}

}  // namespace

std::vector<LinearShape> linear_shapes(const ModelConfig& c, char letter) {
  const std::int64_t q = c.heads * c.head_dim;
  switch (letter) {
    case '*':
      return {{"qkv", q + 2 * c.kv_heads * c.head_dim, c.hidden}, {"out", c.hidden, q}};
    case '-':
      return {{"up", c.ffn * (c.activation == Activation::swiglu ? 2 : 1), c.hidden},
              {"down", c.hidden, c.ffn}};
    default:
      return {{"in", c.mamba.projected(), c.hidden}, {"out", c.hidden, c.mamba.inner()}};
  }
}

double training_flops_per_token(const ModelConfig& c, std::int64_t sequence) {
  double forward = 2 * as_double(c.vocab) * as_double(c.hidden);
  for (const char letter : c.pattern) {
    for (const LinearShape& linear : linear_shapes(c, letter))
      forward += 2 * as_double(linear.out) * as_double(linear.in);
    if (letter == '*')  // scores and values, each with half of the sequence on average
      forward += 2 * 2 * as_double(c.heads * c.head_dim) * as_double(sequence + 1) / 2;
    if (letter == 'M')  // state update and output, as a recurrence would compute them
      forward += 6 * as_double(c.mamba.inner() * c.mamba.state) +
                 2 * as_double(c.mamba.conv_channels() * c.mamba.conv);
  }
  return 3 * forward;  // the backward pass has two products for each of the forward pass
}

MemoryEstimate estimate_memory(const ModelConfig& c, const Recipe& recipe, std::int64_t tokens,
                               DType storage) {
  const double storage_bytes = bits_of(storage) / 8.0;
  MemoryEstimate estimate;
  estimate.weights = 4 * as_double(parameter_count(c));
  estimate.gradients = estimate.weights;
  estimate.optimizer = 2 * estimate.weights;
  estimate.operands = storage == DType::f32 ? 0 : storage_bytes * as_double(c.vocab * c.hidden);

  double per_token =
      storage_bytes * as_double(c.hidden * (c.blocks() + 3));  // residual stream, hidden, gradient
  PassingThrough widest;
  double first_operand = 0;  // bytes per token of the quantized operands of one call, which layers share
  double second_operand = 0;
  for (std::int64_t index = 0; index < c.blocks(); ++index) {
    const char letter = c.pattern[static_cast<std::size_t>(index)];
    per_token += storage_bytes * as_double(kept_elements(c, letter)) + 4 * kept_f32(c, letter);
    for (const LinearShape& linear : linear_shapes(c, letter)) {
      const std::string name = "blocks." + std::to_string(index) + "." + linear.name;
      const LinearPrecision precision = recipe.at({name, index}, 0);
      const double elements = as_double(linear.out) * as_double(linear.in);
      if (storage != DType::f32 || precision[Operand::fprop_w])
        estimate.operands += elements * bytes_per_element(precision[Operand::fprop_w], storage);
      if (precision[Operand::dgrad_w] && !precision.weight_codes_shared())
        estimate.operands += elements * bytes_per_element(precision[Operand::dgrad_w], storage);
      // The attention's output is kept by the attention itself.
      if (precision[Operand::wgrad_x] || !(letter == '*' && linear.name == "out"))
        per_token += as_double(linear.in) * bytes_per_element(precision[Operand::wgrad_x], storage);
      if (precision[Operand::wgrad_x]) widest.input = std::max(widest.input, linear.in);
      const auto quantized = [&](Operand operand, std::int64_t width) {
        return precision[operand] ? as_double(width) * bytes_per_element(precision[operand], storage) : 0.0;
      };
      first_operand = std::max(
          {first_operand, quantized(Operand::fprop_x, linear.in), quantized(Operand::dgrad_dy, linear.out)});
      second_operand = std::max(second_operand, quantized(Operand::wgrad_dy, linear.out));
    }
    const std::vector<LinearShape> linears = linear_shapes(c, letter);
    widest.wide = std::max(widest.wide, linears[0].out);
    widest.middle = std::max(widest.middle, letter == 'M' ? c.mamba.conv_channels() : linears[1].in);
    if (letter == 'M') widest.scan = c.mamba.inner();
  }
  estimate.activations =
      as_double(tokens) *
      (per_token + storage_bytes * as_double(widest.elements(c.hidden)) + first_operand + second_operand);
  return estimate;
}

}  // namespace tetrad
