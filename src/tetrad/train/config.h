// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training run, as one would write it in a configuration; config/ reads and writes it.

#include <cstdint>
#include <optional>
#include <string>

#include "tetrad/data/config.h"
#include "tetrad/model/config.h"
#include "tetrad/optim/config.h"
#include "tetrad/recipe/config.h"

namespace tetrad {

struct ScheduleConfig {
  std::string kind = "wsd";        //!< wsd | cosine | constant
  double warmup = 0.02;            //!< fraction of the run
  std::int64_t warmup_steps = 0;   //!< instead, if not 0
  std::int64_t warmup_tokens = 0;  //!< instead, if not 0
  double decay = 0.2;              //!< wsd: the last fraction of the run
  std::int64_t decay_steps = 0;    //!< instead, if not 0
  std::int64_t decay_tokens = 0;   //!< instead, if not 0
  double final = 0.01;             //!< learning rate at the end, as a fraction of lr
  friend bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

struct EvalConfig {
  std::int64_t every = 0;       //!< steps; 0 = only at the end
  std::int64_t sequences = 64;  //!< how many of each source's held-out tokens are used
  std::string bf16 = "last";    //!< which evaluations are made in BF16 too: last | always | never
  friend bool operator==(const EvalConfig&, const EvalConfig&) = default;
};

struct CheckpointConfig {
  bool enabled = true;          //!< false: none at all, for trials of speed
  std::int64_t every = 0;       //!< steps; 0 = only at the end
  double minutes = 15;          //!< after so many without a checkpoint there is one; 0 = never
  std::int64_t keep = 2;        //!< the newest
  std::int64_t keep_every = 0;  //!< steps; those at multiples of it stay for good; 0 = none
  bool keep_best = true;        //!< the one with the lowest held-out loss stays too
  [[nodiscard]] bool stays_for_good(std::int64_t step) const {
    return keep_every > 0 && step > 0 && step % keep_every == 0;
  }
  friend bool operator==(const CheckpointConfig&, const CheckpointConfig&) = default;
};

struct HealthConfig {
  std::string policy =
      "skip";  //!< on a loss, gradient or quantizer input that is not finite: skip | rollback | stop
  std::int64_t max_skips = 10;   //!< in a row, and rollbacks to the same step
  std::string on_spike = "log";  //!< log | skip | rollback | stop
  double spike_sigma = 6;        //!< robust standard deviations (MAD)
  std::int64_t spike_window = 128;
  double divergence_nats = 0.5;         //!< smoothed loss above its best …
  std::int64_t divergence_steps = 500;  //!< … for so many steps
  friend bool operator==(const HealthConfig&, const HealthConfig&) = default;
};

/// What is random, each with a seed of its own; nothing: train.seed.
struct SeedsConfig {
  std::optional<std::uint64_t> data;      //!< order of the samples
  std::optional<std::uint64_t> init;      //!< first weights
  std::optional<std::uint64_t> rounding;  //!< stochastic rounding and signs of Hadamard transforms
  friend bool operator==(const SeedsConfig&, const SeedsConfig&) = default;
};

/// Where things lie that need not be on a device all the time. The results are the same.
struct MemoryConfig {
  std::string moments = "auto";   //!< of AdamW: auto | device | host
  std::string weights = "auto";   //!< of linear layers in four bits: auto | values | codes
  std::string residual = "auto";  //!< inputs of blocks, from forward to backward: auto | device | host
  friend bool operator==(const MemoryConfig&, const MemoryConfig&) = default;
};

struct TrainConfig {
  std::uint64_t seed = 1;
  SeedsConfig seeds;
  std::int64_t steps = 0;  //!< steps or tokens, not both
  std::int64_t tokens = 0;
  std::int64_t batch = 0;       //!< sequences per optimizer step
  std::int64_t sequence = 0;    //!< tokens
  std::int64_t microbatch = 0;  //!< sequences at a time; 0 = the whole batch
  std::int64_t groups = 1;      //!< of microbatches, each with a sum of gradients of its own
  MemoryConfig memory;
  std::string recompute = "none";  //!< none | cheap | ffn | full | auto
  double z_loss = 0;               //!< weight of log²(sum of exp(logits)) beside the loss
  std::string from;                //!< checkpoint whose weights the run begins with; empty: random ones
  EvalConfig eval;
  CheckpointConfig checkpoint;
  HealthConfig health;
  std::int64_t log_every = 1;          //!< steps between progress lines
  std::int64_t telemetry_every = 100;  //!< steps between quantizer statistics; 0 = never
  /// Microbatches of a step.
  std::int64_t microbatches() const { return microbatch > 0 ? batch / microbatch : 1; }
  std::uint64_t data_seed() const { return seeds.data.value_or(seed); }
  std::uint64_t init_seed() const { return seeds.init.value_or(seed); }
  std::uint64_t rounding_seed() const { return seeds.rounding.value_or(seed); }
  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

struct RunConfig {
  std::string backend = "auto";   //!< auto | cpu | cuda
  std::int64_t threads = 0;       //!< 0 = all cores
  double gpu_memory = 0;          //!< GB that the run may have on the device; 0 = what is free
  double host_memory = 0;         //!< the same of the host
  std::string selftest = "auto";  //!< auto | off: before the first run on a kind of GPU that is not known
  double rank_minutes = 10;       //!< after which a rank that others wait for ends the run
  std::string out;                //!< the run's folder
  std::string metrics_address;    //!< where GET /metrics is answered; empty: nowhere
  std::string trace;              //!< file for where the time of steps goes; empty: none
  std::int64_t trace_steps = 5;   //!< the first so many after the start
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

/// How ranks share a run. The results are the same, but for those of gradient_wire.
struct ParallelConfig {
  std::int64_t zero = 0;  //!< 0: every rank has everything; shared are 1: weights and moments, 2: gradients
                          //!< too, 3: what products read too
  std::string gradient_wire = "f32";  //!< f32 | bf16: how gradients of groups leave a rank
  std::int64_t ranks_per_node = 0;    //!< 0: as the names of hosts say
  friend bool operator==(const ParallelConfig&, const ParallelConfig&) = default;
};

struct Config {
  ModelConfig model;
  PrecisionConfig precision;
  DataConfig data;
  OptimConfig optim;
  ScheduleConfig schedule;
  TrainConfig train;
  ParallelConfig parallel;
  RunConfig run;
  friend bool operator==(const Config&, const Config&) = default;
};

}  // namespace tetrad
