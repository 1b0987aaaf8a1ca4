// SPDX-License-Identifier: Apache-2.0
#include "quantize_command.h"

#include "command.h"
#include "tetrad/ops/file_random.h"

namespace tetrad::app {
namespace {

/// The options as typed; they become a QuantSpec once all are known, because defaults depend on the format.
struct TypedOptions {
  QuantizeArguments arguments;
  std::string format = "nvfp4";
  std::string block;
  std::string rounding = "nearest";
  std::string signs = "fixed";
  std::string scale;
  bool demo = false;
};

void run(TypedOptions options) {
  QuantizeArguments& arguments = options.arguments;
  if (options.demo) {
    quantize_demo(arguments.seed, arguments.threads, arguments.json);
    return;
  }
  TETRAD_CHECK(!arguments.input.empty() && !arguments.output.empty(),
               "quantize: give an input file and an output, as in `tetrad quantize IN.safetensors -o "
               "OUT.safetensors`, or "
               "--demo");
  QuantSpec& spec = arguments.spec;
  spec.format = format_from_name(options.format);
  spec.block = options.block.empty() ? default_block(spec.format) : block_from_name(options.block);
  spec.rounding = rounding_from_name(options.rounding);
  spec.signs = options.signs == "fixed" ? kFixedSigns : kNoSigns;
  if (!options.scale.empty()) spec.scaling = scaling_from_name(options.scale, spec.format);
  if (options.signs == "fresh") spec.signs = signs_of_file(arguments.seed);
  quantize_file(arguments);
}

}  // namespace

void add_quantize(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "quantize",
      "Quantize every 2-D tensor of a safetensors file; print what was lost. Other tensors are copied.");
  auto options = std::make_shared<TypedOptions>();
  QuantizeArguments& arguments = options->arguments;
  command->add_option("IN", arguments.input, "Input file: 2-D tensors must be F32, BF16 or F16")
      ->type_name("FILE");
  command->add_option("-o,--output", arguments.output, "Output file, replaced whole or not at all")
      ->type_name("FILE");
  command->add_option("--format", options->format, "Number format")
      ->check(CLI::IsMember({"nvfp4", "mxfp4", "fp8"}))
      ->capture_default_str();
  command
      ->add_option(
          "--block", options->block,
          "Elements that share a scale: 1x16 or 16x16 (nvfp4), 1x32 or 32x32 (mxfp4), 1x128, 128x128 or "
          "tensor (fp8)")
      ->check(CLI::IsMember({"1x16", "16x16", "1x32", "32x32", "1x128", "128x128", "tensor"}));
  command
      ->add_option("--axis", arguments.spec.axis,
                   "Axis the blocks run along; 0 gives the result of the transpose")
      ->check(CLI::IsMember({0, 1}))
      ->capture_default_str();
  command->add_option("--rounding", options->rounding, "Rounding of the elements")
      ->check(CLI::IsMember({"nearest", "stochastic", "stochastic-hardware"}))
      ->capture_default_str();
  command
      ->add_option("--seed", arguments.seed,
                   "Seed of stochastic rounding, of eden, of fresh signs and of --demo")
      ->capture_default_str();
  command
      ->add_option("--hadamard", arguments.spec.hadamard, "Size of the random Hadamard transform; 0 for none")
      ->check(CLI::IsMember({0, 2, 4, 8, 16, 32, 64, 128}))
      ->capture_default_str();
  command->add_option("--signs", options->signs, "Signs of the transform; fresh draws 128 by --seed")
      ->check(CLI::IsMember({"fixed", "none", "fresh"}))
      ->capture_default_str();
  command
      ->add_option(
          "--scale", options->scale,
          "How block scales are found: nearest (the default), 4/6 or search, the better of two or the "
          "best of six, or eden, corrected after a transform (nvfp4); floor (the default) or up, with which "
          "nothing saturates (mxfp4)")
      ->check(CLI::IsMember({"nearest", "4/6", "search", "eden", "floor", "up"}));
  command->add_flag_callback(
      "--adaptive", [options] { options->scale = "4/6"; }, "The old name of --scale 4/6");
  command->add_flag("--dequantize", arguments.dequantize, "Also write NAME.dequantized in F32");
  command->add_flag("--demo", options->demo, "Quantize generated tensors in every format instead of a file");
  command->add_flag("--json", arguments.json, "Print one JSON object instead of text");
  add_threads_option(*command, arguments.threads);
  set_examples(
      *command,
      "  tetrad quantize model.safetensors -o model-nvfp4.safetensors\n"
      "  tetrad quantize grads.safetensors -o out.safetensors --axis 0 --hadamard 16 --rounding stochastic\n"
      "  tetrad quantize model.safetensors -o out.safetensors --scale search\n"
      "  tetrad quantize grads.safetensors -o out.safetensors --scale eden --hadamard 128 --signs fresh\n"
      "  tetrad quantize model.safetensors -o out.safetensors --block 16x16 --dequantize --json\n"
      "  tetrad quantize --demo");
  command->callback([&action, options] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
