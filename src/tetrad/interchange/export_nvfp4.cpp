#include "tetrad/interchange/export_nvfp4.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "tetrad/core/error.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

using Json = nlohmann::ordered_json;

/// The module that a tensor belongs to: its name without ".weight".
std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

class Nvfp4Encoder final : public PieceEncoder {
 public:
  Nvfp4Encoder(ServingFormat format, DType dense, const Nvfp4Plan& plan, const InputAmax& input_amax,
               Backend& cpu)
      : format_(format), dense_(dense), plan_(plan), input_amax_(input_amax), cpu_(cpu) {}

  std::vector<TensorDeclaration> declare(const MappedParameter& parameter) const override {
    if (plan_.find(parameter) == nullptr) return dense_.declare(parameter);
    const Names names = names_of_format();
    // a scalar here, one element there
    const std::vector<std::int64_t> one =
        format_ == ServingFormat::modelopt ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1};
    std::vector<TensorDeclaration> tensors;
    for (const Piece& piece : parameter.pieces) {
      const std::string module = module_of(piece.name);
      const std::int64_t rows = piece.shape[0];
      const std::int64_t cols = piece.shape[1];
      tensors.push_back({module + names.codes, DType::u8, {rows, cols / 2}});
      tensors.push_back({module + ".weight_scale", DType::f8_e4m3, {rows, cols / nvfp4::kBlock}});
      tensors.push_back({module + names.weight_scale, DType::f32, one});
      tensors.push_back({module + names.input_scale, DType::f32, one});
    }
    return tensors;
  }

  void write(const MappedParameter& parameter, std::span<const float> values, ShardedWriter& out) override {
    const QuantSpec* spec = plan_.find(parameter);
    if (spec == nullptr) return dense_.write(parameter, values, out);
    const Names names = names_of_format();
    // One matrix of ours is what servers fuse again (q/k/v, gate/up): all its pieces share both scales.
    const Nvfp4Weight weight = quantize_weight(cpu_, parameter, *spec, values);
    const Nvfp4Scale input = nvfp4_scale(input_amax(parameter.linear));
    const bool multiplies = format_ == ServingFormat::modelopt;
    for (const Piece& piece : parameter.pieces) {
      const std::string module = module_of(piece.name);
      out.write(module + names.codes, weight.code_rows(piece.first_row, piece.shape[0]));
      out.write(module + ".weight_scale", weight.scale_rows(piece.first_row, piece.shape[0]));
      write_number(out, module + names.weight_scale, multiplies ? weight.decode_scale : weight.encode_scale);
      write_number(out, module + names.input_scale, multiplies ? input.decode : input.encode);
    }
  }

 private:
  struct Names {
    const char* codes;
    const char* weight_scale;
    const char* input_scale;
  };

  Names names_of_format() const {
    if (format_ == ServingFormat::modelopt) return {".weight", ".weight_scale_2", ".input_scale"};
    return {".weight_packed", ".weight_global_scale", ".input_global_scale"};
  }

  float input_amax(const std::string& layer) const {
    const auto found = input_amax_.find(layer);
    if (found == input_amax_.end())
      throw Error(fmt::format("{} was not calibrated; this is a bug of the caller", layer),
                  ExitCode::failure);
    return found->second;
  }

  static void write_number(ShardedWriter& out, const std::string& name, float value) {
    out.write(name, std::as_bytes(std::span(&value, 1)));
  }

  ServingFormat format_;
  DenseEncoder dense_;
  const Nvfp4Plan& plan_;
  const InputAmax& input_amax_;
  Backend& cpu_;
};

/// Full names of the modules that have a matrix and are not quantized: servers match parts of names too.
Json excluded_modules(const CheckpointSource& source, const Nvfp4Plan& plan) {
  Json names = Json::array();
  for (const MappedParameter& parameter : source.parameters()) {
    if (parameter.shape.size() < 2 || plan.find(parameter) != nullptr) continue;
    for (const Piece& piece : parameter.pieces) names.push_back(module_of(piece.name));
    if (!parameter.copy.empty()) names.push_back(module_of(parameter.copy));  // the head of a tied model
  }
  return names;
}

Json modelopt_group() {
  const Json numbers = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  return {{"input_activations", numbers}, {"weights", numbers}, {"targets", {"Linear"}}};
}

Json modelopt_config(const Json& excluded, const std::string& version) {
  return {{"quant_method", "modelopt"},
          {"quant_algo", "NVFP4"},
          {"group_size", 16},
          {"kv_cache_scheme", nullptr},
          {"ignore", excluded},
          {"config_groups", {{"group_0", modelopt_group()}}},
          {"producer", {{"name", "tetrad"}, {"version", version}}}};
}

Json modelopt_file(const Json& excluded, const std::string& version) {
  return {{"producer", {{"name", "tetrad"}, {"version", version}}},
          {"quantization",
           {{"quant_algo", "NVFP4"},
            {"kv_cache_quant_algo", nullptr},
            {"group_size", 16},
            {"exclude_modules", excluded}}}};
}

Json compressed_tensors_config(const Json& excluded) {
  const auto numbers = [](const Json& dynamic) -> Json {
    return {{"num_bits", 4},     {"type", "float"},    {"strategy", "tensor_group"},
            {"symmetric", true}, {"dynamic", dynamic}, {"group_size", 16}};
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

ExportSummary export_nvfp4(const CheckpointSource& source, const std::filesystem::path& out,
                           const ExportOptions& options, ServingFormat format, const Nvfp4Plan& plan,
                           const InputAmax& input_amax, Backend& cpu) {
  plan.require_layers();
  Nvfp4Encoder encoder(format, options.dtype, plan, input_amax, cpu);
  const Json excluded = excluded_modules(source, plan);
  if (format == ServingFormat::modelopt) {
    Json files = Json::object();
    files["hf_quant_config.json"] = modelopt_file(excluded, options.version);
    return export_hf_folder(source, out, options, encoder, files, modelopt_config(excluded, options.version));
  }
  return export_hf_folder(source, out, options, encoder, nullptr, compressed_tensors_config(excluded));
}

}  // namespace tetrad
