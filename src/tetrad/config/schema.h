// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one description of what a configuration may say: names, ranges and meaning of all keys. Reading,
// writing, checking and help all visit it. Defaults stand in the structs.
//
// A visitor has field(name, value, help, rule = {}) for every type that appears here.

#include "tetrad/config/scalar.h"
#include "tetrad/ops/linear_precision.h"
#include "tetrad/train/config.h"

namespace tetrad::config {

inline std::vector<std::string_view> recipe_names() { return {kRecipeNames.begin(), kRecipeNames.end()}; }
inline std::vector<std::string_view> format_names() { return {kFormatNames.begin(), kFormatNames.end()}; }
inline std::vector<std::string_view> operand_names() { return {kOperandNames.begin(), kOperandNames.end()}; }

template <class V>
void describe(V& v, RopeScaling& c) {
  v.field("factor", c.factor, "how much longer the context became", at_least(1));
  v.field("low_freq_factor", c.low_freq_factor, "wavelengths above context / this are stretched", above(0));
  v.field("high_freq_factor", c.high_freq_factor, "wavelengths below context / this stay", above(0));
  v.field("original_context", c.original_context, "tokens, before scaling", at_least(1));
}

template <class V>
void describe(V& v, RopeConfig& c) {
  v.field("theta", c.theta, "base of the frequencies", at_least(1));
  v.field("scaling", c.scaling, "llama3 scaling for long contexts, or none");
}

template <class V>
void describe(V& v, Mamba2Config& c) {
  v.field("heads", c.heads, "heads of a Mamba-2 block", at_least(0));
  v.field("head_dim", c.head_dim, "channels of a head", at_least(1));
  v.field("groups", c.groups, "groups of heads that share B and C", at_least(1));
  v.field("state", c.state, "state per channel", at_least(1));
  v.field("conv", c.conv, "width of the causal convolution", at_least(1));
  v.field("chunk", c.chunk, "tokens per chunk of the scan: speed, not mathematics", at_least(1));
}

template <class V>
void describe(V& v, TextConfig& c) {
  v.field(
      "context", c.context,
      "tokens that it can look at, for exports; 0: those of training, or what its positions are stretched to",
      at_least(0));
  v.field("begin", c.begin, "id of the token in front of a text; auto: the tokenizer's", at_least(0));
  v.field("end", c.end, "id of what tokenizers call eos_token; auto: the first of ends", at_least(0));
  v.field("ends", c.ends, "ids of the tokens that end a text, or none: the tokenizer's separator",
          at_least(0));
}

template <class V>
void describe(V& v, ModelConfig& c) {
  v.field("name", c.name, "for people");
  v.field("pattern", c.pattern,
          "one letter per block: * attention, - feed-forward, M Mamba-2. A preset says it (model: NAME; "
          "tetrad models lists them)");
  v.field("hidden", c.hidden, "width of the residual stream", at_least(0));
  v.field("heads", c.heads, "query heads of an attention block", at_least(0));
  v.field("kv_heads", c.kv_heads, "key and value heads", at_least(0));
  v.field("head_dim", c.head_dim, "width of a head", at_least(0));
  v.field("qk_norm", c.qk_norm, "a norm of each query and each key, before positions, as in Qwen3");
  v.field("ffn", c.ffn, "inner width of a feed-forward block", at_least(0));
  v.field("activation", c.activation, "of feed-forward blocks: swiglu or squared_relu");
  v.field("rope", c.rope, "rotary positions, or none");
  v.field("mamba", c.mamba, "shape of Mamba-2 blocks");
  v.field("vocab", c.vocab, "tokens that the model knows", at_least(0));
  v.field("tied", c.tied, "one matrix for the embedding and the head");
  v.field("norm_epsilon", c.norm_epsilon, "added under the root of every norm", above(0));
  v.field("init_std", c.init_std, "standard deviation of the first weights", above(0));
  v.field("text", c.text, "the texts that it was made for; imports bring it along");
}

template <class V>
void describe(V& v, HighPrecisionConfig& c) {
  v.field("first", c.first, "blocks at the beginning that stay in BF16; auto: as the recipe says",
          at_least(0));
  v.field("last", c.last, "blocks at the end that stay in BF16; auto: as the recipe says", at_least(0));
  v.field("match", c.match,
          "linear layers that stay in BF16, by name, such as blocks.3.qkv; * matches anything");
  v.field("fp8", c.fp8, "linear layers that are in FP8 instead of four bits, by name");
}

template <class V>
void describe(V& v, RhtConfig& c) {
  v.field("gemms", c.gemms, "products with a random Hadamard transform: any of fprop, dgrad, wgrad, or none",
          one_of({"fprop", "dgrad", "wgrad"}));
  v.field("size", c.size, "of the transform: 2, 4, … 128", between(2, 128));
  v.field("signs", c.signs,
          "of the transform: fixed, none, per-step or fresh; auto: fresh with scale eden, else fixed",
          one_of({"fixed", "none", "per-step", "fresh"}));
}

template <class V>
void describe(V& v, OperandConfig& c) {
  v.field("format", c.format, "of this operand", one_of(format_names()));
  v.field("block", c.block, "elements that share a scale",
          one_of({"1x16", "16x16", "1x32", "32x32", "1x128", "128x128", "tensor"}));
  v.field("rounding", c.rounding, "of this operand",
          one_of({"nearest", "stochastic", "stochastic-hardware"}));
  v.field("hadamard", c.hadamard, "size of the transform; 0: none", between(0, 128));
  v.field("scale", c.scale,
          "how block scales are found: nearest, 4/6, search, eden (nvfp4); up, floor (mxfp4)",
          one_of({"nearest", "4/6", "search", "eden", "up", "floor"}));
  v.field("source", c.source, "of dgrad.w and wgrad.x: input, or fprop, the values that fprop multiplied",
          one_of({"input", "fprop"}));
}

template <class V>
void describe(V& v, ScaleConfig& c) {
  v.field("forward", c.forward,
          "of NVFP4 operands of fprop, and of square weight blocks: nearest, 4/6 or search; auto: as the "
          "recipe says",
          one_of({"nearest", "4/6", "search"}));
  v.field("backward", c.backward,
          "of the other NVFP4 operands of dgrad and wgrad: nearest, 4/6, search or eden; auto: as the recipe "
          "says",
          one_of({"nearest", "4/6", "search", "eden"}));
  v.field("mxfp4", c.mxfp4, "of MXFP4 operands: up or floor; auto: up", one_of({"up", "floor"}));
}

template <class V>
void describe(V& v, PrecisionSwitch& c) {
  v.field("at", c.at, "from this fraction of the token budget on", from_below(0, 1));
  v.field("forward", c.forward, "recipe of the forward pass from then on; auto: unchanged",
          one_of(recipe_names()));
  v.field("backward", c.backward, "recipe of the backward pass from then on; auto: unchanged",
          one_of(recipe_names()));
}

template <class V>
void describe(V& v, PrecisionConfig& c) {
  v.field("recipe", c.recipe, "number formats of all linear layers", one_of(recipe_names()));
  v.field("high_precision", c.high_precision, "blocks and layers that stay in BF16 or FP8, or none");
  v.field("rht", c.rht, "random Hadamard transform");
  v.field("sr", c.sr, "stochastic rounding on any of gradients, activations, weights, or none",
          one_of({"gradients", "activations", "weights"}));
  v.field("sr_hardware", c.sr_hardware, "stochastic rounding with the bias of Blackwell's software");
  v.field("weights_2d", c.weights_2d, "square blocks for weights: 16x16, 32x32 (mxfp4) or 128x128 (fp8)");
  v.field("scale", c.scale, "how block scales are found");
  v.field(
      "source", c.source,
      "of W and x in the backward pass: input, or fprop, the values that fprop multiplied; auto: fprop with "
      "scale eden or a backward pass in BF16, else input",
      one_of({"input", "fprop"}));
  v.field(
      "centre", c.centre,
      "quantize activations without their mean over the tokens of a microbatch, which is multiplied in full "
      "precision");
  v.field("operands", c.operands,
          "single operands of single products: fprop.x, fprop.w, dgrad.dy, dgrad.w, wgrad.dy, wgrad.x",
          one_of(operand_names()));
  v.field("schedule", c.schedule, "other recipes from a fraction of the token budget on");
  v.field("storage", c.storage, "of activations: bf16, or f32 for checking gradients",
          one_of({"bf16", "f32"}));
}

template <class V>
void describe(V& v, SourceConfig& c) {
  v.field("path", c.path, "token file, without .bin and .idx; must be given");
  v.field("heldout", c.heldout, "token file for evaluation; empty: none");
}

template <class V>
void describe(V& v, DataPhase& c) {
  v.field("until", c.until, "this fraction of the token budget", between(0, 1));
  v.field("mix", c.mix, "weights of the sources", at_least(0));
}

template <class V>
void describe(V& v, DataConfig& c) {
  v.field("tokenizer", c.tokenizer, "bytes, a tokenizer.json, or empty: what the token files say");
  v.field("sources", c.sources,
          "token files by name, at least one; !replace in front of the map drops those of files before");
  v.field("phases", c.phases, "mixtures over the run; empty: all sources in proportion to their size");
  v.field("document_mask", c.document_mask, "attention, scan and positions do not cross documents");
}

template <class V>
void describe(V& v, OptimConfig& c) {
  v.field("lr", c.lr, "peak learning rate", above(0));
  v.field("beta1", c.beta1, "decay of the first moment", from_below(0, 1));
  v.field("beta2", c.beta2, "decay of the second moment", from_below(0, 1));
  v.field("epsilon", c.epsilon, "added to the root of the second moment", above(0));
  v.field("weight_decay", c.weight_decay,
          "decoupled; on linear layers, embedding and head, not on norms, biases, convolutions, A and D",
          at_least(0));
  v.field("clip", c.clip, "largest global gradient norm; 0: no clipping", at_least(0));
  v.field("moments", c.moments,
          "how the moments of linear layers' weights are stored: f32, or bf16 with stochastic rounding, in "
          "half the memory; those of embedding, head, norms and all others are f32",
          one_of({"f32", "bf16"}));
}

template <class V>
void describe(V& v, ScheduleConfig& c) {
  v.field("kind", c.kind, "wsd, cosine or constant", one_of({"wsd", "cosine", "constant"}));
  v.field("warmup", c.warmup, "first fraction of the run", between(0, 1));
  v.field("warmup_steps", c.warmup_steps, "first steps, instead of warmup; 0: warmup counts", count());
  v.field("warmup_tokens", c.warmup_tokens, "first tokens, instead of warmup; 0: warmup counts", count());
  v.field("decay", c.decay, "wsd: last fraction of the run", between(0, 1));
  v.field("decay_steps", c.decay_steps, "wsd: last steps, instead of decay; 0: decay counts", count());
  v.field("decay_tokens", c.decay_tokens, "wsd: last tokens, instead of decay; 0: decay counts", count());
  v.field("final", c.final, "learning rate at the end, as a fraction of lr", between(0, 1));
}

template <class V>
void describe(V& v, EvalConfig& c) {
  v.field("every", c.every, "steps; 0: only at the end", at_least(0));
  v.field("sequences", c.sequences, "of each source's held-out tokens", at_least(1));
  v.field("bf16", c.bf16,
          "evaluations that are also made with the forward pass in BF16: last, always or never",
          one_of({"last", "always", "never"}));
}

template <class V>
void describe(V& v, CheckpointConfig& c) {
  v.field("enabled", c.enabled, "false: none at all, for trials of speed; such a run cannot be resumed");
  v.field("every", c.every, "steps; 0: only at the end", at_least(0));
  v.field("minutes", c.minutes, "after so many without a checkpoint there is one; 0: never", at_least(0));
  v.field("keep", c.keep, "newest checkpoints that stay", at_least(2));
  v.field("keep_every", c.keep_every, "steps; checkpoints at multiples of it stay for good; 0: none",
          at_least(0));
  v.field("keep_best", c.keep_best, "the checkpoint with the lowest held-out loss stays too");
}

template <class V>
void describe(V& v, HealthConfig& c) {
  v.field("policy", c.policy, "on values that are not finite: skip, rollback or stop",
          one_of({"skip", "rollback", "stop"}));
  v.field("max_skips", c.max_skips, "in a row", at_least(0));
  v.field("on_spike", c.on_spike, "of the loss: log, skip, rollback or stop",
          one_of({"log", "skip", "rollback", "stop"}));
  v.field("spike_sigma", c.spike_sigma, "robust standard deviations that make a spike", above(0));
  v.field("spike_window", c.spike_window, "steps", at_least(2));
  v.field("divergence_nats", c.divergence_nats, "smoothed loss above its best", above(0));
  v.field("divergence_steps", c.divergence_steps, "for so many steps is divergence", at_least(1));
}

template <class V>
void describe(V& v, SeedsConfig& c) {
  v.field("data", c.data, "order of the samples; auto: train.seed");
  v.field("init", c.init, "first weights; auto: train.seed");
  v.field("rounding", c.rounding, "stochastic rounding and signs of Hadamard transforms; auto: train.seed");
}

template <class V>
void describe(V& v, MemoryConfig& c) {
  v.field("moments", c.moments,
          "AdamW's moments: device, host (pinned memory, read and written once per step) or auto: on the "
          "host as many as do not "
          "fit on the device",
          one_of({"auto", "device", "host"}));
  v.field("weights", c.weights,
          "weights in four bits, as a GPU that multiplies BF16 keeps them: values (ready to multiply), codes "
          "(a quarter of that, expanded for each product) or auto: codes where values do not fit",
          one_of({"auto", "values", "codes"}));
  v.field("residual", c.residual,
          "the inputs of blocks between forward and backward: device, host (pinned memory, copied while "
          "blocks compute) or auto: on the host where they do not fit on the device",
          one_of({"auto", "device", "host"}));
}

template <class V>
void describe(V& v, TrainConfig& c) {
  v.field("seed", c.seed, "of everything random");
  v.field("seeds", c.seeds, "of one thing each, where they are to differ");
  v.field("steps", c.steps, "optimizer steps; these or tokens must be given", count());
  v.field("tokens", c.tokens, "token budget; this or steps must be given", count());
  v.field("batch", c.batch, "sequences per optimizer step; must be given", at_least(0));
  v.field("sequence", c.sequence, "tokens of a sequence; must be given", at_least(0));
  v.field("microbatch", c.microbatch, "sequences at a time; 0: the whole batch", at_least(0));
  v.field("groups", c.groups,
          "groups of microbatches, each with a sum of gradients of its own, which are then added in a fixed "
          "order: ranks share them, so there can be as many ranks as groups, and the results do not depend "
          "on how many there are",
          at_least(1));
  v.field("memory", c.memory,
          "where things lie that a GPU does not need all the time, and in what form; auto or device (nothing "
          "on the host, weights as values) for all of them. The results are the same");
  v.field("recompute", c.recompute,
          "in the backward pass, to need less memory: none; cheap (norms, activations), ffn (and all of "
          "feed-forward blocks) or full (all blocks); auto: in as few blocks as it takes to fit. The results "
          "are the same",
          one_of({"none", "cheap", "ffn", "full", "auto"}));
  v.field("z_loss", c.z_loss,
          "weight of the squared log of the softmax's sum beside the loss, 1e-4 say, which keeps logits "
          "small; the "
          "losses that are reported are without it",
          at_least(0));
  v.field("from", c.from, "checkpoint or run whose weights are the first ones; empty: random weights");
  v.field("eval", c.eval, "evaluation on held-out tokens");
  v.field("checkpoint", c.checkpoint, "checkpoints");
  v.field("health", c.health, "what to do when training goes wrong");
  v.field("log_every", c.log_every, "steps between progress lines", at_least(1));
  v.field("telemetry_every", c.telemetry_every, "steps between quantizer statistics; 0: never", at_least(0));
}

template <class V>
void describe(V& v, ParallelConfig& c) {
  v.field(
      "zero", c.zero,
      "what several ranks share instead of each having it whole (ZeRO): 0: nothing; 1: f32 weights and "
      "moments, of which each has some rows; 2: gradients, too; 3: and what products read of the weights, "
      "which is gathered block by block. The results are the same",
      between(0, 3));
  v.field("gradient_wire", c.gradient_wire,
          "how the gradients of a group leave its rank: f32; or bf16, rounded once, which is half as much to "
          "send. The results are those of one rank with the same setting",
          one_of({"f32", "bf16"}));
  v.field("ranks_per_node", c.ranks_per_node,
          "so many neighbouring ranks reach each other faster than others: sums are made among those first; "
          "0: those on the same host. The results are the same",
          at_least(0));
}

template <class V>
void describe(V& v, RunConfig& c) {
  v.field("backend", c.backend, "auto, cpu or cuda", one_of({"auto", "cpu", "cuda"}));
  v.field("threads", c.threads, "0: all cores", between(0, 4096));
  v.field("gpu_memory", c.gpu_memory,
          "GB of a GPU that the run may take, also to plan for one that is not here; 0: what is free",
          at_least(0));
  v.field("host_memory", c.host_memory, "the same for pinned memory of the machine", at_least(0));
  v.field(
      "selftest", c.selftest,
      "auto: before the first run on a kind of GPU that Tetrad was not tested on, a short selftest decides "
      "whether its matrix units for narrow formats are used; off: they are",
      one_of({"auto", "off"}));
  v.field("rank_minutes", c.rank_minutes,
          "with several ranks: how long they wait for one of them before the run ends with an error that "
          "names it",
          above(0));
  v.field("out", c.out, "folder of the run");
  v.field(
      "metrics_address", c.metrics_address,
      "where Prometheus finds GET /metrics while the run trains, such as 127.0.0.1:9464, or a port alone, "
      "for this machine only; empty: nowhere");
  v.field("trace", c.trace,
          "file for where the time of the first steps goes, for Perfetto or chrome://tracing; also ranges "
          "for Nsight; "
          "such steps are slower");
  v.field("trace_steps", c.trace_steps, "steps that are traced", at_least(1));
}

template <class V>
void describe(V& v, Config& c) {
  v.field("model", c.model, "what is trained");
  v.field("precision", c.precision, "in which formats");
  v.field("data", c.data, "on what");
  v.field("optim", c.optim, "AdamW");
  v.field("schedule", c.schedule, "of the learning rate");
  v.field("train", c.train, "how long, in which portions");
  v.field("parallel", c.parallel, "on several ranks");
  v.field("run", c.run, "where");
}

}  // namespace tetrad::config
