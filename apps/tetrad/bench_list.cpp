// SPDX-License-Identifier: Apache-2.0
#include "bench_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "benchmarks.h"
#include "number_checks.h"
#include "tetrad/config/config.h"
#include "tetrad/data/text_files.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/model/presets.h"
#include "tetrad/tokenizer/bpe_trainer.h"

namespace tetrad::app {
namespace {

/// "8192x4096" -> {8192, 4096}; every extent a positive multiple of `unit`.
std::vector<std::int64_t> parse_extents(const std::string& text, std::size_t count, std::int64_t unit = 16) {
  std::vector<std::int64_t> extents;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    std::int64_t extent = 0;
    const auto [next, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || (next != end && *next != 'x')) break;
    extents.push_back(extent);
    at = next == end ? end : next + 1;
  }
  bool sound = at == end && extents.size() == count;
  for (const std::int64_t extent : extents) sound &= extent > 0 && extent % unit == 0 && extent <= (1 << 20);
  TETRAD_CHECK(sound, "--size {}: expected {} multiples of {}, at most 1048576 each, joined by x", text,
               count, unit);
  return extents;
}

void run_quantize(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  const auto extents = parse_extents(options.size, 2);
  bench::quantize(backend, extents[0], extents[1], options.dtype == "bf16" ? DType::bf16 : DType::f32,
                  options.repeats, report);
}

void run_gemm(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  const auto extents = parse_extents(options.size, 3);
  bench::gemm(backend, extents[0], extents[1], extents[2], options.repeats, report);
}

void run_linear(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  const auto extents = parse_extents(options.size, 3);
  bench::linear(backend, extents[0], extents[1], extents[2], options.repeats, report);
}

void run_attention(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  const auto e = parse_extents(options.size, 5, 1);
  bench::attention(backend, {e[0], e[1], e[2], e[3], e[4]}, options.repeats, report);
}

void run_mamba(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  const auto e = parse_extents(options.size, 7, 1);
  bench::mamba(backend, {e[0], e[1], e[2], e[3], e[4], e[5], e[6]}, options.repeats, report);
}

/// A preset in a configuration that is otherwise the default; `settings` may change its precision and memory.
Config config_of(const BenchOptions& options, std::vector<std::string> settings) {
  const ModelConfig* model = find_preset(options.model);
  TETRAD_CHECK(model != nullptr, "--model {}: there is no preset of that name", options.model);
  for (const std::string& change : options.settings) {
    TETRAD_CHECK(change.starts_with("precision.") || change.starts_with("train.memory."),
                 "--set {}: expected precision.KEY=VALUE or train.memory.KEY=VALUE", change);
    settings.push_back(change);
  }
  Config config = parse_config("{}", "the benchmark's configuration", settings);
  config.model = *model;
  config.train.sequence = options.sequence;
  return config;
}

void run_step(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  Config config = config_of(options, {"train.memory=" + options.memory});
  config.train.batch = options.batch * options.microbatches;
  config.train.microbatch = options.batch;
  config.train.telemetry_every = 0;
  config.train.recompute = options.recompute;
  if (options.profile)
    bench::profile_step(backend, config, options.recipes, options.repeats, report);
  else if (options.beside > 0)
    bench::step_beside(backend, config, options.recipes, options.beside, options.repeats, report);
  else
    bench::step(backend, config, options.recipes, options.repeats, report);
}

void run_decode(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  const Config config = config_of(options, {});
  const bench::DecodeOptions decode{options.recipes, options.clients, options.prompt, options.tokens};
  if (options.profile)
    bench::profile_decode(backend, config, decode, report);
  else
    bench::decode(backend, config, decode, options.repeats, report);
}

void run_moments(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  bench::moments(backend, options.gigabytes, options.repeats, report);
}

void run_loss(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  const auto extents = parse_extents(options.size, 3);
  bench::loss(backend, extents[0], extents[1], extents[2], options.repeats, report);
}

void run_optimizer(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  bench::optimizer(backend, static_cast<std::int64_t>(options.millions * 1e6), options.repeats, report);
}

void run_checkpoint(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  bench::checkpoint(backend, config_of(options, {}), options.folder, options.repeats, report);
}

/// At most this much of what the paths hold, so that a large folder takes no hours.
std::vector<std::string> texts_of(const std::vector<std::string>& paths) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  for (const TextFile& found : find_text_files(paths, {}).files) {
    const MappedFile file(found.path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (text.empty() || text.find('\0') != std::string_view::npos) continue;
    if (bytes + text.size() > kMaxBytes) break;
    texts.emplace_back(text);
    bytes += text.size();
  }
  TETRAD_CHECK(!texts.empty(), "there is no text in {}: name files or folders of text",
               fmt::join(paths, ", "));
  return texts;
}

void run_tokenizer(Backend&, const BenchOptions& options, const bench::Report& report) {
  const std::vector<std::string> texts = texts_of(options.paths);
  std::unique_ptr<Tokenizer> tokenizer;
  if (options.tokenizer.empty()) {
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    tokenizer = std::make_unique<BpeTokenizer>(train_bpe(views, options.vocab));
  } else {
    tokenizer = load_tokenizer(options.tokenizer);
  }
  bench::tokenizer(*tokenizer, texts, options.repeats, report);
}

std::string title_of_size(const BenchOptions& options) { return options.size; }

std::string title_of_moments(const BenchOptions& options) { return fmt::format("{} GB", options.gigabytes); }

std::string title_of_optimizer(const BenchOptions& options) {
  return fmt::format("{} million parameters", options.millions);
}

std::string title_of_checkpoint(const BenchOptions& options) { return options.model; }

std::string title_of_step(const BenchOptions& options) {
  return fmt::format(
      "{}, {} sequences of {} tokens{}{}", options.model, options.batch, options.sequence,
      options.microbatches == 1 ? "" : fmt::format(" in each of {} microbatches", options.microbatches),
      options.recompute == "none" ? "" : ", recompute " + options.recompute);
}

std::string title_of_decode(const BenchOptions& options) {
  return fmt::format("{}, {} tokens after {}", options.model, options.tokens, options.prompt);
}

std::string title_of_tokenizer(const BenchOptions& options) {
  return fmt::format(
      "{} on {}", options.tokenizer.empty() ? fmt::format("of {} tokens", options.vocab) : options.tokenizer,
      fmt::join(options.paths, ", "));
}

void add_size(CLI::App& command, BenchOptions& options, const char* help) {
  command.add_option("--size", options.size, help)->capture_default_str();
}

void add_quantize_options(CLI::App& command, BenchOptions& options) {
  add_size(command, options, "Tensor, ROWSxCOLS");
  command.add_option("--dtype", options.dtype, "Of the input")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
}

void add_gemm_options(CLI::App& command, BenchOptions& options) { add_size(command, options, "MxNxK"); }

void add_linear_options(CLI::App& command, BenchOptions& options) {
  add_size(command, options, "TOKENSxOUTxIN");
}

void add_attention_options(CLI::App& command, BenchOptions& options) {
  add_size(command, options, "BATCHxHEADSxKV_HEADSxSEQUENCExHEAD_DIM");
}

void add_mamba_options(CLI::App& command, BenchOptions& options) {
  add_size(command, options, "BATCHxSEQUENCExHEADSxHEAD_DIMxGROUPSxSTATExCHUNK");
}

void add_moments_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--gigabytes", options.gigabytes, "Moments on the host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_model_option(CLI::App& command, BenchOptions& options) {
  command.add_option("--model", options.model, "A preset")->capture_default_str();
}

void add_loss_options(CLI::App& command, BenchOptions& options) {
  add_size(command, options, "TOKENSxVOCABxWIDTH");
}

void add_optimizer_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--millions", options.millions, "Of parameters")
      ->check(CLI::Range(0.001, 1e5))
      ->capture_default_str();
}

void add_checkpoint_options(CLI::App& command, BenchOptions& options) {
  add_model_option(command, options);
  command.add_option("--folder", options.folder, "Where checkpoints are written, and removed again")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
}

void add_recipe_options(CLI::App& command, BenchOptions& options) {
  add_model_option(command, options);
  command.add_option("--recipes", options.recipes, "Recipes to measure")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kRecipeNames.begin(), kRecipeNames.end())))
      ->capture_default_str();
  command
      .add_option("--set", options.settings,
                  "Changes to the recipes besides bf16, such as precision.scale=4/6, or to what lies where, "
                  "such as train.memory.weights=codes")
      ->type_name("KEY=VALUE");
  command.add_flag("--profile", options.profile,
                   "Measure where the time goes, by kind of operation: how much of it, and how fast products "
                   "are");
}

void add_step_options(CLI::App& command, BenchOptions& options) {
  add_recipe_options(command, options);
  command
      .add_option("--beside", options.beside,
                  "Measure what is left of the speed beside N threads that keep cores busy")
      ->check(whole_number(0, 1024))
      ->type_name("N")
      ->excludes("--profile");
  command.add_option("--batch", options.batch, "Sequences of a microbatch")
      ->check(whole_number(1))
      ->capture_default_str();
  command.add_option("--microbatches", options.microbatches, "Of a step")
      ->check(whole_number(1))
      ->capture_default_str();
  command.add_option("--sequence", options.sequence, "Tokens per sequence, a multiple of 32")
      ->check(whole_number(1))
      ->capture_default_str();
  command
      .add_option("--recompute", options.recompute,
                  "What to recompute in the backward pass: none, cheap, ffn, full or auto")
      ->check(CLI::IsMember({"none", "cheap", "ffn", "full", "auto"}))
      ->capture_default_str();
  command
      .add_option("--memory", options.memory,
                  "What lies on the device: device (everything), auto (as much as fits), or host: "
                  "everything but AdamW's moments")
      ->check(CLI::IsMember({"device", "host", "auto"}))
      ->capture_default_str();
}

void add_decode_options(CLI::App& command, BenchOptions& options) {
  add_recipe_options(command, options);
  command.add_option("--clients", options.clients, "How many at once: one or more numbers")
      ->delimiter(',')
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  command.add_option("--prompt", options.prompt, "Tokens of each client's prompt")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--tokens", options.tokens, "New tokens for each client")
      ->check(whole_number(2, 1 << 20))
      ->capture_default_str();
}

void add_tokenizer_options(CLI::App& command, BenchOptions& options) {
  command.add_option("PATH", options.paths, "Text files or folders; the first 64 MB are used")
      ->capture_default_str();
  command.add_option("--tokenizer", options.tokenizer, "Default: a byte-level BPE learned from the text");
  command.add_option("--vocab", options.vocab, "Vocabulary of the learned tokenizer")->capture_default_str();
}

}  // namespace

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> all = {
      {"quantize",
       "Quantizers, relative to a copy of the same tensor",
       {.size = "8192x8192"},
       add_quantize_options,
       title_of_size,
       run_quantize,
       "  tetrad bench quantize\n  tetrad bench quantize --size 4096x4096 --dtype f32 --threads 1"},
      {"gemm",
       "Quantized products, relative to OpenBLAS SGEMM (CPU) or the BF16 product (GPU)",
       {.size = "1024x1024x1024", .repeats = 31},
       add_gemm_options,
       title_of_size,
       run_gemm,
       "  tetrad bench gemm\n  tetrad bench gemm --size 4096x1024x1024 --threads 1"},
      {"linear",
       "A linear layer forward and backward, every recipe relative to BF16",
       {.size = "2048x1024x1024"},
       add_linear_options,
       title_of_size,
       run_linear,
       "  tetrad bench linear --size 16384x4096x4096 --backend cuda"},
      {"attention",
       "Causal attention, relative to a BF16 product",
       {.size = "1x8x4x512x64"},
       add_attention_options,
       title_of_size,
       run_attention,
       "  tetrad bench attention --size 16x32x8x2048x64 --backend cuda"},
      {"mamba",
       "The Mamba-2 scan, relative to a copy of its input",
       {.size = "1x1024x16x64x2x64x64"},
       add_mamba_options,
       title_of_size,
       run_mamba,
       "  tetrad bench mamba --size 8x2048x64x64x8x128x128 --backend cuda"},
      {"moments",
       "AdamW with its moments on the host, relative to a copy",
       {.repeats = 5},
       add_moments_options,
       title_of_moments,
       run_moments,
       "  tetrad bench moments --gigabytes 32 --backend cuda"},
      {"loss",
       "Output head and cross-entropy, relative to a product",
       {.size = "2048x8192x512"},
       add_loss_options,
       title_of_size,
       run_loss,
       "  tetrad bench loss --size 32768x128256x2048 --backend cuda"},
      {"optimizer",
       "AdamW and the norm of the gradients, relative to a copy",
       {.repeats = 9},
       add_optimizer_options,
       title_of_optimizer,
       run_optimizer,
       "  tetrad bench optimizer\n  tetrad bench optimizer --millions 1100 --backend cuda"},
      {"checkpoint",
       "Writing and loading checkpoints, relative to plain files",
       {.model = "llama-162m", .repeats = 5},
       add_checkpoint_options,
       title_of_checkpoint,
       run_checkpoint,
       "  tetrad bench checkpoint\n  tetrad bench checkpoint --model llama-1b --folder /scratch --repeats 3"},
      {"step",
       "Whole training steps, every recipe relative to BF16",
       {.repeats = 9},
       add_step_options,
       title_of_step,
       run_step,
       "  tetrad bench step\n  tetrad bench step --model quickstart-hybrid --threads 1 --json\n"
       "  tetrad bench step --beside 1 --recipes bf16,nvfp4\n"
       "  tetrad bench step --profile --recipes bf16,nvfp4 --threads 1\n"
       "  tetrad bench step --backend cuda --model llama-1b --batch 16 --sequence 2048 --recompute ffn\n"
       "  tetrad bench step --backend cuda --model llama3-8b --batch 1 --microbatches 8 --sequence 8192 "
       "--memory auto"},
      {"decode",
       "Tokens per second that `tetrad serve` computes for clients, relative to one client",
       {.recipes = {"bf16", "nvfp4"}, .repeats = 5},
       add_decode_options,
       title_of_decode,
       run_decode,
       "  tetrad bench decode\n  tetrad bench decode --model llama-162m --clients 1,16,64 --backend cuda\n"
       "  tetrad bench decode --profile --recipes nvfp4 --clients 16"},
      {"tokenizer",
       "Encoding and decoding on one thread, relative to splitting alone and to a copy",
       {.repeats = 5},
       add_tokenizer_options,
       title_of_tokenizer,
       run_tokenizer,
       "  tetrad bench tokenizer\n  tetrad bench tokenizer notes/ --tokenizer tokenizer.json"}};
  return all;
}

}  // namespace tetrad::app
