// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "backend_choice.h"
#include "benchmarks.h"
#include "command.h"
#include "number_checks.h"
#include "tetrad/config/config.h"
#include "tetrad/core/threads.h"
#include "tetrad/data/text_files.h"
#include "tetrad/io/json_text.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/model/presets.h"
#include "tetrad/ops/backend.h"
#include "tetrad/recipe/config.h"
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

struct BenchOptions {
  std::string size;
  std::string dtype = "bf16";
  std::string backend = "auto";
  std::string model = "quickstart";
  std::vector<std::string> recipes = {kRecipeNames.begin(), kRecipeNames.end()};
  std::int64_t batch = 16;
  std::int64_t microbatches = 1;
  std::int64_t sequence = 256;
  std::string recompute = "none";
  std::string memory = "device";
  std::vector<std::string> settings = {};  //!< of the recipes other than bf16, and of memory
  double gigabytes = 1;
  int beside = 0;
  bool profile = false;
  std::vector<std::string> paths = {"/usr/include/c++"};
  std::string tokenizer = {};  //!< empty: learn one
  std::int64_t vocab = 32768;
  int repeats = 15;
  int threads = 0;
  bool json = false;
};

/// Prints figures as they come, or collects them for one JSON object.
class Reporter {
 public:
  Reporter(Backend& backend, const std::string& title, bool json) : json_(json) {
    const bool on_cpu = backend.name() == "cpu";
    const std::string hardware = hardware_name(backend);
    object_ = {{"benchmark", title},
               {"backend", backend.name()},
               {"hardware", hardware},
               {"figures", nlohmann::json::array()}};
    if (on_cpu) object_["threads"] = backend.threads().count();
    heading_ = fmt::format("{}, {}{}\n", title, hardware,
                           on_cpu ? fmt::format(", {} threads", backend.threads().count()) : "");
  }

  void operator()(const bench::Figure& figure) {
    if (!json_) {
      if (object_["figures"].empty())  // not before it is clear that there will be figures
        fmt::print("{}{:<52}  {:>12}  {:>12}  {:>6}\n", heading_, "", "measured", "ceiling", "ratio");
      fmt::print("{:<52}  {:>7.2f} {}  {:>7.2f} {}  {:>5.3f} of {}\n", figure.name, figure.value, figure.unit,
                 figure.ceiling, figure.unit, figure.ratio(), figure.ceiling_name);
      std::fflush(stdout);
    }
    object_["figures"].push_back({{"name", figure.name},
                                  {"unit", figure.unit},
                                  {"value", figure.value},
                                  {"ceiling", figure.ceiling},
                                  {"ceiling_name", figure.ceiling_name},
                                  {"ratio", figure.ratio()}});
  }

  void finish(const Backend& backend) {
    const std::int64_t memory = backend.peak_memory();
    object_["peak_memory_bytes"] = memory;
    if (json_)
      fmt::print("{}\n", json_text(object_, 2));
    else
      fmt::print("peak memory {:.2f} GB\n", static_cast<double>(memory) * 1e-9);
  }

 private:
  nlohmann::json object_;
  std::string heading_;
  bool json_;
};

using Run = void (*)(Backend&, const BenchOptions&, const bench::Report&);

/// One benchmark: what it is called, what it needs and what it says in --help.
struct Benchmark {
  const char* name;
  const char* help;
  const char* size_help;  //!< null: takes no --size
  BenchOptions defaults;
  Run run;
  const char* examples;
};

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

void run_step(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  const ModelConfig* model = find_preset(options.model);
  TETRAD_CHECK(model != nullptr, "--model {}: there is no preset of that name", options.model);
  std::vector<std::string> settings = {"train.memory=" + options.memory};
  for (const std::string& change : options.settings) {
    TETRAD_CHECK(change.starts_with("precision.") || change.starts_with("train.memory."),
                 "--set {}: expected precision.KEY=VALUE or train.memory.KEY=VALUE", change);
    settings.push_back(change);
  }
  Config config = parse_config("{}", "the benchmark's configuration", settings);
  config.model = *model;
  config.train.batch = options.batch * options.microbatches;
  config.train.microbatch = options.batch;
  config.train.sequence = options.sequence;
  config.train.telemetry_every = 0;
  config.train.recompute = options.recompute;
  if (options.profile)
    bench::profile_step(backend, config, options.recipes, options.repeats, report);
  else if (options.beside > 0)
    bench::step_beside(backend, config, options.recipes, options.beside, options.repeats, report);
  else
    bench::step(backend, config, options.recipes, options.repeats, report);
}

void run_moments(Backend& backend, const BenchOptions& options, const bench::Report& report) {
  bench::moments(backend, options.gigabytes, options.repeats, report);
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

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> all = {
      {"quantize",
       "Quantizers, relative to a copy of the same tensor",
       "Tensor, ROWSxCOLS",
       {.size = "8192x8192"},
       run_quantize,
       "  tetrad bench quantize\n  tetrad bench quantize --size 4096x4096 --dtype f32 --threads 1"},
      {"gemm",
       "Quantized products, relative to OpenBLAS SGEMM (CPU) or the BF16 product (GPU)",
       "MxNxK",
       {.size = "1024x1024x1024", .repeats = 31},
       run_gemm,
       "  tetrad bench gemm\n  tetrad bench gemm --size 4096x1024x1024 --threads 1"},
      {"linear",
       "A linear layer forward and backward, every recipe relative to BF16",
       "TOKENSxOUTxIN",
       {.size = "2048x1024x1024"},
       run_linear,
       "  tetrad bench linear --size 16384x4096x4096 --backend cuda"},
      {"attention",
       "Causal attention, relative to a BF16 product",
       "BATCHxHEADSxKV_HEADSxSEQUENCExHEAD_DIM",
       {.size = "1x8x4x512x64"},
       run_attention,
       "  tetrad bench attention --size 16x32x8x2048x64 --backend cuda"},
      {"mamba",
       "The Mamba-2 scan, relative to a copy of its input",
       "BATCHxSEQUENCExHEADSxHEAD_DIMxGROUPSxSTATExCHUNK",
       {.size = "1x1024x16x64x2x64x64"},
       run_mamba,
       "  tetrad bench mamba --size 8x2048x64x64x8x128x128 --backend cuda"},
      {"moments",
       "AdamW with its moments on the host, relative to a copy",
       nullptr,
       {.size = "", .repeats = 5},
       run_moments,
       "  tetrad bench moments --gigabytes 32 --backend cuda"},
      {"step",
       "Whole training steps, every recipe relative to BF16",
       nullptr,
       {.size = "", .repeats = 9},
       run_step,
       "  tetrad bench step\n  tetrad bench step --model quickstart-hybrid --threads 1 --json\n"
       "  tetrad bench step --beside 1 --recipes bf16,nvfp4\n"
       "  tetrad bench step --profile --recipes bf16,nvfp4 --threads 1\n"
       "  tetrad bench step --backend cuda --model llama-1b --batch 16 --sequence 2048 --recompute ffn\n"
       "  tetrad bench step --backend cuda --model llama3-8b --batch 1 --microbatches 8 --sequence 8192 "
       "--memory auto"},
      {"tokenizer",
       "Encoding and decoding on one thread, relative to splitting alone and to a copy",
       nullptr,
       {.size = "", .repeats = 5},
       run_tokenizer,
       "  tetrad bench tokenizer\n  tetrad bench tokenizer notes/ --tokenizer tokenizer.json"}};
  return all;
}

std::string title_of(const Benchmark& benchmark, const BenchOptions& options) {
  if (benchmark.run == run_tokenizer)
    return fmt::format(
        "tokenizer {} on {}",
        options.tokenizer.empty() ? fmt::format("of {} tokens", options.vocab) : options.tokenizer,
        fmt::join(options.paths, ", "));
  if (benchmark.run == run_moments) return fmt::format("moments, {} GB", options.gigabytes);
  if (benchmark.size_help == nullptr)
    return fmt::format(
        "{} {}, {} sequences of {} tokens{}{}", benchmark.name, options.model, options.batch,
        options.sequence,
        options.microbatches == 1 ? "" : fmt::format(" in each of {} microbatches", options.microbatches),
        options.recompute == "none" ? "" : ", recompute " + options.recompute);
  return fmt::format("{} {}", benchmark.name, options.size);
}

void add_options(CLI::App& command, const Benchmark& benchmark, BenchOptions& options) {
  if (benchmark.size_help != nullptr)
    command.add_option("--size", options.size, benchmark.size_help)->capture_default_str();
  if (benchmark.run == run_quantize)
    command.add_option("--dtype", options.dtype, "Of the input")
        ->check(CLI::IsMember({"bf16", "f32"}))
        ->capture_default_str();
  if (benchmark.run == run_step) {
    command.add_option("--model", options.model, "A preset")->capture_default_str();
    command.add_option("--recipes", options.recipes, "Recipes to measure, besides bf16")
        ->delimiter(',')
        ->check(CLI::IsMember(std::vector<std::string>(kRecipeNames.begin(), kRecipeNames.end())))
        ->capture_default_str();
    command
        .add_option(
            "--set", options.settings,
            "Changes to the recipes besides bf16, such as precision.scale=4/6, or to what lies where, such "
            "as train.memory.weights=codes")
        ->type_name("KEY=VALUE");
    command
        .add_option("--beside", options.beside,
                    "Measure what is left of the speed beside N threads that keep cores busy")
        ->check(whole_number(0, 1024))
        ->type_name("N");
    command
        .add_flag("--profile", options.profile,
                  "Measure where the time of a step goes, by kind of operation: how much of it, and how fast "
                  "products are")
        ->excludes("--beside");
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
  if (benchmark.run == run_moments)
    command.add_option("--gigabytes", options.gigabytes, "Moments on the host")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
  if (benchmark.run == run_tokenizer) {
    command.add_option("PATH", options.paths, "Text files or folders; the first 64 MB are used")
        ->capture_default_str();
    command.add_option("--tokenizer", options.tokenizer, "Default: a byte-level BPE learned from the text");
    command.add_option("--vocab", options.vocab, "Vocabulary of the learned tokenizer")
        ->capture_default_str();
  }
  add_backend_option(command, options.backend);
  command.add_option("--repeats", options.repeats, "Timed runs; the median counts")
      ->check(whole_number(1, 100000))
      ->capture_default_str();
  command.add_flag("--json", options.json, "Print one JSON object instead of text");
  add_threads_option(command, options.threads);
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed, each figure next to its ceiling in the same run");
  command->require_subcommand(1);
  set_examples(*command, "  tetrad bench quantize\n  tetrad bench gemm --size 2048x2048x2048 --json");
  for (const Benchmark& benchmark : benchmarks()) {
    CLI::App* sub = command->add_subcommand(benchmark.name, benchmark.help);
    auto options = std::make_shared<BenchOptions>(benchmark.defaults);
    add_options(*sub, benchmark, *options);
    set_examples(*sub, benchmark.examples);
    sub->callback([&action, &benchmark, options] {
      action = [&benchmark, options] {
        const std::unique_ptr<Backend> chosen = choose_backend(options->backend, options->threads);
        Backend& backend = *chosen;
        Reporter reporter(backend, title_of(benchmark, *options), options->json);
        benchmark.run(backend, *options, std::ref(reporter));
        reporter.finish(backend);
        return ExitCode::ok;
      };
    });
  }
}

}  // namespace tetrad::app
