#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "benchmarks.h"
#include "command.h"
#include "tetrad/core/threads.h"
#include "tetrad/model/presets.h"
#include "tetrad/ops/backend.h"

namespace tetrad::app {
namespace {

/// "8192x4096" -> {8192, 4096}; every extent a positive multiple of 16.
std::vector<std::int64_t> parse_extents(const std::string& text, std::size_t count) {
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
  for (const std::int64_t extent : extents) sound &= extent > 0 && extent % 16 == 0 && extent <= (1 << 20);
  TETRAD_CHECK(sound, "--size {}: expected {} multiples of 16, at most 1048576 each, joined by x, as in {}",
               text, count, count == 2 ? "8192x8192" : "1024x1024x1024");
  return extents;
}

struct Options {
  std::string size;
  std::string dtype = "bf16";
  int repeats = 15;
  bool json = false;
};

/// Prints figures as they come, or collects them for one JSON object.
class Reporter {
 public:
  Reporter(std::string title, bool json) : json_(json) {
    object_ = {{"benchmark", title}, {"threads", thread_count()}, {"figures", nlohmann::json::array()}};
    for (const auto& [name, value] : cpu_backend().properties())
      if (name == "processor") object_[name] = value;
    if (json_) return;
    fmt::print("{}, {} threads, {}\n", title, thread_count(), object_["processor"].get<std::string>());
    fmt::print("{:<52}  {:>12}  {:>12}  {:>6}\n", "", "measured", "ceiling", "ratio");
  }

  void operator()(const bench::Figure& figure) {
    if (!json_) {
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

  void finish() const {
    if (json_) fmt::print("{}\n", object_.dump(2));
  }

 private:
  nlohmann::json object_;
  bool json_;
};

void add_common(CLI::App& command, Options& options) {
  command.add_option("--repeats", options.repeats, "Timed runs; the median counts")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command.add_flag("--json", options.json, "One JSON object on stdout");
  add_threads_option(command);
}

void run_quantize(const Options& options) {
  const auto extents = parse_extents(options.size, 2);
  Reporter reporter(fmt::format("quantize {} {}", options.size, options.dtype), options.json);
  bench::quantize(extents[0], extents[1], options.dtype == "bf16" ? DType::bf16 : DType::f32, options.repeats,
                  std::ref(reporter));
  reporter.finish();
}

void run_gemm(const Options& options) {
  const auto extents = parse_extents(options.size, 3);
  Reporter reporter(fmt::format("gemm {}", options.size), options.json);
  bench::gemm(extents[0], extents[1], extents[2], options.repeats, std::ref(reporter));
  reporter.finish();
}

struct StepOptions {
  Options common{.size = "", .repeats = 9};
  std::string model = "quickstart";
  std::int64_t batch = 16;
  std::int64_t sequence = 256;
};

void run_step(const StepOptions& options) {
  const ModelConfig* model = find_preset(options.model);
  TETRAD_CHECK(model != nullptr, "--model {}: there is no preset of that name", options.model);
  Reporter reporter(
      fmt::format("step {}, {} sequences of {} tokens", options.model, options.batch, options.sequence),
      options.common.json);
  bench::step(*model, options.batch, options.sequence, options.common.repeats, std::ref(reporter));
  reporter.finish();
}

void add_step(CLI::App& command, Action& action) {
  CLI::App* step =
      command.add_subcommand("step", "Whole training steps of a model, every recipe beside BF16");
  auto options = std::make_shared<StepOptions>();
  step->add_option("--model", options->model, "A preset")->capture_default_str();
  step->add_option("--batch", options->batch, "Sequences")->check(CLI::PositiveNumber)->capture_default_str();
  step->add_option("--sequence", options->sequence, "Tokens of a sequence, a multiple of 32")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_common(*step, options->common);
  set_examples(*step,
               "  tetrad bench step\n  tetrad bench step --model quickstart-hybrid --threads 1 --json");
  step->callback([&action, options] {
    action = [options] {
      run_step(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed beside the ceiling measured in the same run");
  command->require_subcommand(1);
  set_examples(*command, "  tetrad bench quantize\n  tetrad bench gemm --size 2048x2048x2048 --json");

  CLI::App* quantize = command->add_subcommand("quantize", "Quantizers, beside memcpy of the same tensor");
  auto quantize_options = std::make_shared<Options>(Options{.size = "8192x8192"});
  quantize->add_option("--size", quantize_options->size, "Tensor, ROWSxCOLS")->capture_default_str();
  quantize->add_option("--dtype", quantize_options->dtype, "Of the input")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  add_common(*quantize, *quantize_options);
  set_examples(*quantize,
               "  tetrad bench quantize\n  tetrad bench quantize --size 4096x4096 --dtype f32 --threads 1");
  quantize->callback([&action, quantize_options] {
    action = [quantize_options] {
      run_quantize(*quantize_options);
      return ExitCode::ok;
    };
  });

  add_step(*command, action);
  CLI::App* gemm = command->add_subcommand("gemm", "Quantized products, beside OpenBLAS SGEMM");
  auto gemm_options = std::make_shared<Options>(Options{.size = "1024x1024x1024", .repeats = 31});
  gemm->add_option("--size", gemm_options->size, "MxNxK")->capture_default_str();
  add_common(*gemm, *gemm_options);
  set_examples(*gemm, "  tetrad bench gemm\n  tetrad bench gemm --size 4096x1024x1024 --threads 1");
  gemm->callback([&action, gemm_options] {
    action = [gemm_options] {
      run_gemm(*gemm_options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
