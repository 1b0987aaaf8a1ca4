// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "backend_choice.h"
#include "command.h"
#include "number_checks.h"
#include "progress.h"
#include "terminal.h"
#include "tetrad/interchange/calibration.h"
#include "tetrad/interchange/checkpoint_source.h"
#include "tetrad/interchange/export_gguf.h"
#include "tetrad/interchange/export_nvfp4.h"
#include "tetrad/io/json_text.h"
#include "version.h"

namespace tetrad::app {
namespace {

struct ExportCommand {
  const CLI::App* parsed = nullptr;  //!< what was said
  std::string checkpoint;
  std::string out;
  std::string to = "hf";
  std::string dtype = "bf16";
  std::string precision = "trained";
  std::string backend = "auto";
  CalibrationOptions calibration;
  double shard_gb = static_cast<double>(kShardBytes) / 1e9;
  int threads = 0;
  bool force = false;
  bool json = false;
};

DType dtype_of(const std::string& name) {
  if (name == "f32") return DType::f32;
  return name == "f16" ? DType::f16 : DType::bf16;
}

ExportSummary export_serving(const ExportCommand& command, const CheckpointSource& source, Backend& cpu,
                             const ExportOptions& options, const StopSignals& signals) {
  const PrecisionConfig precision = with_precision(source.config().precision, command.precision);
  const Nvfp4Plan plan(precision, source.config().model, source.parameters());
  plan.require_layers();  // before the calibration, which takes time
  check_export_folder(command.out, options.overwrite);
  const std::unique_ptr<Backend> backend = choose_backend(command.backend, command.threads);
  LoadedModel model(source.path(), {.precision = command.precision}, *backend);
  CalibrationOptions calibration = command.calibration;
  calibration.progress = stoppable_progress("calibrating", signals);
  const InputAmax amax = calibrate(model, calibration);
  const ServingFormat format =
      command.to == "modelopt" ? ServingFormat::modelopt : ServingFormat::compressed_tensors;
  return export_nvfp4(source, command.out, options, format, plan, amax, cpu);
}

/// NVFP4 where the forward pass has it; a model without is BF16.
ExportSummary export_llama_cpp(const ExportCommand& command, const CheckpointSource& source, Backend& cpu,
                               const ExportOptions& options) {
  const PrecisionConfig precision = with_precision(source.config().precision, command.precision);
  const Nvfp4Plan plan(precision, source.config().model, source.parameters());
  return export_gguf(source, command.out, options, plan, cpu);
}

/// What a format has no use for would else be passed over without a word.
void check_options(const ExportCommand& command) {
  const auto refuse = [&](const char* option, const char* reason) {
    TETRAD_CHECK(command.parsed->count(option) == 0, "{} has no effect with --to {}: {}; leave it out",
                 option, command.to, reason);
  };
  if (command.to == "hf") refuse("--precision", "all weights keep their values, rounded to --dtype");
  if (command.to == "gguf") {
    refuse("--dtype", "matrices are NVFP4 or BF16, the rest is F32");
    refuse("--shard-gb", "it is one file");
  }
  if (command.to == "hf" || command.to == "gguf")
    for (const char* option : {"--calibrate", "--calibration-sequences", "--backend"})
      refuse(option, "it has no input scales");
}

void run(const ExportCommand& command) {
  check_options(command);
  const CheckpointSource source(command.checkpoint, &terminal());
  ExportOptions options;
  options.dtype = dtype_of(command.dtype);
  options.shard_bytes = static_cast<std::uint64_t>(command.shard_gb * 1e9);
  options.version = kVersion;
  options.overwrite = command.force ? Overwrite::yes : Overwrite::no;
  const StopSignals signals;
  options.progress = stoppable_progress("exporting", signals);
  const std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = command.threads, .instruction_set = {}});
  const ExportSummary summary = command.to == "hf" ? export_hf(cpu->threads(), source, command.out, options)
                                : command.to == "gguf"
                                    ? export_llama_cpp(command, source, *cpu, options)
                                    : export_serving(command, source, *cpu, options, signals);
  for (const std::string& warning : summary.warnings) terminal().say("WARNING: " + warning);
  if (command.json)
    fmt::print("{}\n", json_text(nlohmann::json{{"checkpoint", source.path().string()},
                                                {"out", command.out},
                                                {"to", command.to},
                                                {"tensors", summary.tensors},
                                                {"files", summary.shards},
                                                {"bytes", summary.bytes},
                                                {"warnings", summary.warnings}}));
  else
    fmt::print("{}: {} tensors, {:.1f} MB in {} file{}\n", command.out, summary.tensors,
               static_cast<double>(summary.bytes) / 1e6, summary.shards, summary.shards == 1 ? "" : "s");
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExportCommand>();
  CLI::App* command = app.add_subcommand("export", "Export a checkpoint for other programs");
  options->parsed = command;
  command
      ->add_option("CHECKPOINT", options->checkpoint,
                   "A run's folder (its newest checkpoint) or RUN/checkpoints/step-N")
      ->required();
  command->add_option("-o,--out", options->out, "Folder to write; for gguf, file")
      ->required()
      ->type_name("DIR");
  command
      ->add_option(
          "--to", options->to,
          "hf: Hugging Face (Llama, Qwen3 or Nemotron-H); modelopt, compressed-tensors: the same in NVFP4, "
          "for inference servers; gguf: one file for llama.cpp, in NVFP4 or BF16")
      ->check(CLI::IsMember({"hf", "modelopt", "compressed-tensors", "gguf"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  command
      ->add_option("--dtype", options->dtype,
                   "Type of weights that are not NVFP4: bf16, f16 or f32 (not for gguf)")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->type_name("T")
      ->capture_default_str();
  command->add_option("--shard-gb", options->shard_gb, "Largest file, in GB")
      ->check(number_between(1e-6, 1e6))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option(
          "--precision", options->precision,
          "Which layers are NVFP4: trained (those that were at the end of training, with the exact codes of "
          "the forward pass) or nvfp4 (quantized now, however it was trained); for gguf also bf16")
      ->check(CLI::IsMember({"trained", "nvfp4", "bf16"}))
      ->type_name("P")
      ->capture_default_str();
  command
      ->add_option("--calibrate", options->calibration.data,
                   "Token file or text to calibrate the input scales of modelopt and compressed-tensors "
                   "(default: the run's held-out tokens)")
      ->type_name("NAME");
  command
      ->add_option("--calibration-sequences", options->calibration.sequences, "Sequences to calibrate with")
      ->check(whole_number(1, std::int64_t{1} << 30))
      ->type_name("N")
      ->capture_default_str();
  add_backend_option(*command, options->backend, "Backend of the calibration: auto, cpu or cuda");
  command->add_flag("--force", options->force, "Replace an earlier export");
  command->add_flag("--json", options->json, "Print one JSON object instead of text");
  add_threads_option(*command, options->threads);
  set_examples(*command,
               "  tetrad export run -o model --to hf\n"
               "  tetrad export run/checkpoints/step-300 -o model-f32 --dtype f32\n"
               "  tetrad export run -o model-nvfp4 --to modelopt --calibrate data/code-heldout\n"
               "  tetrad export run -o model.gguf --to gguf\n"
               "  tetrad export run -o model-bf16.gguf --to gguf --precision bf16");
  command->callback([options, &action] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
