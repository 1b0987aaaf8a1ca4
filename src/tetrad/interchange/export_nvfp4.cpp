// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/export_nvfp4.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "tetrad/core/error.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

using Json = nlohmann::ordered_json;

class Nvfp4Encoder final : public PieceEncoder {
 public:
  Nvfp4Encoder(ServingFormat format, DType dense, const Nvfp4Plan& plan, const InputAmax& input_amax,
               Backend& cpu)
      : format_(format), dense_(cpu.threads(), dense), plan_(plan), input_amax_(input_amax), cpu_(cpu) {}

  std::vector<TensorDeclaration> declare(const MappedParameter& parameter) const override {
    if (plan_.find(parameter) == nullptr) return dense_.declare(parameter);
    // a scalar here, one element there
    const std::vector<std::int64_t> one =
        format_ == ServingFormat::modelopt ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1};
    std::vector<TensorDeclaration> tensors;
    for (const Piece& piece : parameter.pieces) {
      const auto name = [&](std::string_view ending) { return module_of(piece.names.hf).append(ending); };
      const std::int64_t rows = piece.shape[0];
      const std::int64_t cols = piece.shape[1];
      tensors.push_back({name(names_.codes), DType::u8, {rows, cols / 2}});
      tensors.push_back({name(kBlockScales), DType::f8_e4m3, {rows, cols / nvfp4::kBlock}});
      tensors.push_back({name(names_.weight_scale), DType::f32, one});
      tensors.push_back({name(names_.input_scale), DType::f32, one});
    }
    return tensors;
  }

  void write(const MappedParameter& parameter, std::span<const float> values, ShardedWriter& out) override {
    const QuantSpec* spec = plan_.find(parameter);
    if (spec == nullptr) return dense_.write(parameter, values, out);
    // One matrix of ours is what servers fuse again (q/k/v, gate/up): all its pieces share both scales.
    const Nvfp4Weight weight = quantize_weight(cpu_, parameter, *spec, values);
    const Nvfp4Scale input = nvfp4_scale(input_amax(parameter.linear));
    for (const Piece& piece : parameter.pieces) {
      const auto name = [&](std::string_view ending) { return module_of(piece.names.hf).append(ending); };
      out.write(name(names_.codes), weight.code_rows(piece.first_row, piece.shape[0]));
      out.write(name(kBlockScales), weight.scale_rows(piece.first_row, piece.shape[0]));
      write_scale(out, name(names_.weight_scale), weight.scale);
      write_scale(out, name(names_.input_scale), input);
    }
  }

 private:
  float input_amax(const std::string& layer) const {
    const auto found = input_amax_.find(layer);
    if (found == input_amax_.end())
      throw Error(fmt::format("{} was not calibrated; this is a bug of the caller", layer),
                  ExitCode::failure);
    return found->second;
  }

  void write_scale(ShardedWriter& out, const std::string& name, const Nvfp4Scale& scale) const {
    out.write(name, std::as_bytes(std::span(names_.divides ? &scale.encode : &scale.decode, 1)));
  }

  ServingFormat format_;
  const ServingNames& names_ = names_of(format_);
  DenseEncoder dense_;
  const Nvfp4Plan& plan_;
  const InputAmax& input_amax_;
  Backend& cpu_;
};

/// Full names of the modules that have a matrix and are not quantized: servers match parts of names too.
Json excluded_modules(const ExportSource& source, const Nvfp4Plan& plan, ServingFormat format) {
  Json names = Json::array();
  for (const MappedParameter& parameter : source.parameters()) {
    if (parameter.shape.size() < 2 || plan.find(parameter) != nullptr) continue;
    for (const std::string& name : module_names(parameter, format)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> warnings_about(const Nvfp4Plan& plan) {
  const std::set<std::string>& only = plan.only_in_training();
  if (only.empty()) return {};
  return {
      fmt::format("inputs were quantized with {} in training, which servers do not have: they make plain "
                  "NVFP4 of them, so that results differ from those here. The weights have the codes of "
                  "training",
                  fmt::join(only, " and "))};
}

Json producer(const std::string& version) { return {{"name", "tetrad"}, {"version", version}}; }

/// For config.json.
Json modelopt_config(const Json& excluded, const std::string& version) {
  const Json numbers = {
      {"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", nvfp4::kBlock}};
  const Json group = {{"input_activations", numbers}, {"weights", numbers}, {"targets", {"Linear"}}};
  return {{"quant_method", "modelopt"},   {"quant_algo", "NVFP4"}, {"group_size", nvfp4::kBlock},
          {"kv_cache_scheme", nullptr},   {"ignore", excluded},    {"config_groups", {{"group_0", group}}},
          {"producer", producer(version)}};
}

/// hf_quant_config.json.
Json modelopt_file(const Json& excluded, const std::string& version) {
  return {{"producer", producer(version)},
          {"quantization",
           {{"quant_algo", "NVFP4"},
            {"kv_cache_quant_algo", nullptr},
            {"group_size", nvfp4::kBlock},
            {"exclude_modules", excluded}}}};
}

Json compressed_tensors_config(const Json& excluded) {
  const auto numbers = [](const Json& dynamic) -> Json {
    return {{"num_bits", 4},     {"type", "float"},    {"strategy", "tensor_group"},
            {"symmetric", true}, {"dynamic", dynamic}, {"group_size", nvfp4::kBlock}};
  };
  return {{"quant_method", "compressed-tensors"},
          {"format", "nvfp4-pack-quantized"},
          {"quantization_status", "compressed"},
          {"ignore", excluded},
          {"kv_cache_scheme", nullptr},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", numbers(false)},
              {"input_activations", numbers("local")},
              {"output_activations", nullptr}}}}}};
}

}  // namespace

ExportSummary export_nvfp4(const ExportSource& source, const std::filesystem::path& out,
                           const ExportOptions& options, ServingFormat format, const Nvfp4Plan& plan,
                           const InputAmax& input_amax, Backend& cpu) {
  plan.require_layers();
  Nvfp4Encoder encoder(format, options.dtype, plan, input_amax, cpu);
  const Json excluded = excluded_modules(source, plan, format);
  if (format == ServingFormat::modelopt) {
    Json files = Json::object();
    files["hf_quant_config.json"] = modelopt_file(excluded, options.version);
    return export_hf_folder(source, out, options, encoder, files, modelopt_config(excluded, options.version),
                            warnings_about(plan));
  }
  return export_hf_folder(source, out, options, encoder, nullptr, compressed_tensors_config(excluded),
                          warnings_about(plan));
}

}  // namespace tetrad
