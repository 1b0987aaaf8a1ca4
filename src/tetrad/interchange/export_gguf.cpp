#include "tetrad/interchange/export_gguf.h"

#include <cmath>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/interchange/gguf_model.h"
#include "tetrad/interchange/values.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

std::string scale_name(const Piece& piece) {
  std::string name = gguf_name(piece.name);
  return name.substr(0, name.rfind('.')) + ".scale";
}

/// 64 values: 4 scale bytes, then for each of the 4 runs of 16 the codes j and j + 8 in one byte.
void pack_block(const std::byte* codes, const std::byte* scales, std::byte* out) {
  std::memcpy(out, scales, 4);
  out += 4;
  const auto code = [&](int i) {
    const auto pair = std::to_integer<std::uint32_t>(codes[i / 2]);
    return i % 2 == 0 ? unpack_e2m1_even(pair) : unpack_e2m1_odd(pair);
  };
  for (int run = 0; run < 4; ++run)
    for (int j = 0; j < 8; ++j) *out++ = std::byte{pack_e2m1(code(run * 16 + j), code(run * 16 + j + 8))};
}

class GgufExporter {
 public:
  GgufExporter(const CheckpointSource& source, const Nvfp4Plan& plan, Backend& cpu)
      : source_(source), model_(source.config().model), plan_(plan), cpu_(cpu) {}

  std::vector<GgufTensor> declare() const {
    std::vector<GgufTensor> tensors;
    for (const MappedParameter& parameter : source_.parameters())
      for (const Piece& piece : parameter.pieces) {
        const GgmlType type = type_of(parameter);
        tensors.push_back({gguf_name(piece.name), type, gguf_shape(parameter, piece, model_)});
        if (type == GgmlType::nvfp4) tensors.push_back({scale_name(piece), GgmlType::f32, {1}});
      }
    if (const auto factors = gguf_rope_factors(model_); !factors.empty())
      tensors.push_back({"rope_freqs.weight", GgmlType::f32, {std::int64_t(factors.size())}});
    return tensors;
  }

  void write(GgufWriter& out) {
    for (const MappedParameter& parameter : source_.parameters()) {
      std::vector<float> values = source_.values(parameter);
      const QuantSpec* spec = plan_.find(parameter);
      if (spec == nullptr) {
        if (parameter.name.ends_with(".a_log"))
          for (float& value : values) value = static_cast<float>(-std::exp(double{value}));
        write_dense(parameter, values, type_of(parameter), out);
        continue;
      }
      const Nvfp4Weight weight = quantize_weight(cpu_, parameter, *spec, values);
      if (type_of(parameter) == GgmlType::nvfp4) {
        write_nvfp4(parameter, weight, out);
      } else {
        decode(weight, values);
        write_dense(parameter, values, GgmlType::f32, out);
      }
    }
    const std::vector<float> factors = gguf_rope_factors(model_);
    if (!factors.empty()) out.write("rope_freqs.weight", std::as_bytes(std::span(factors)));
  }

 private:
  GgmlType type_of(const MappedParameter& parameter) const {
    if (plan_.find(parameter) != nullptr)
      return parameter.columns() % kGgmlNvfp4Values == 0 ? GgmlType::nvfp4 : GgmlType::f32;
    const bool is_small = parameter.shape.size() < 2 || parameter.name.ends_with("conv.weight");
    return is_small ? GgmlType::f32 : GgmlType::bf16;
  }

  static void decode(const Nvfp4Weight& weight, std::vector<float>& values) {
    parallel_for(weight.rows, [&](std::int64_t row) {
      for (std::int64_t col = 0; col < weight.cols; ++col) {
        const auto at = static_cast<std::size_t>(row * weight.cols + col);
        const auto pair = std::to_integer<std::uint32_t>(weight.codes[at / 2]);
        const auto scale = std::to_integer<std::uint32_t>(weight.scales[at / nvfp4::kBlock]);
        const std::uint32_t code = col % 2 == 0 ? unpack_e2m1_even(pair) : unpack_e2m1_odd(pair);
        values[at] = nvfp4::decode_without_tensor_scale(code, scale) * weight.decode_scale;
      }
    });
  }

  void write_dense(const MappedParameter& parameter, std::span<const float> values, GgmlType type,
                   GgufWriter& out) const {
    const auto columns = static_cast<std::size_t>(parameter.columns());
    const DType dtype = type == GgmlType::f32 ? DType::f32 : DType::bf16;
    for (const Piece& piece : parameter.pieces) {
      const std::span<const float> rows = rows_of(parameter, piece, values);
      std::vector<float> ordered(rows.size());
      for (std::size_t row = 0; row < rows.size() / columns; ++row) {
        const auto from =
            static_cast<std::size_t>(gguf_source_row(piece, model_, static_cast<std::int64_t>(row)));
        std::memcpy(ordered.data() + row * columns, rows.data() + from * columns, columns * sizeof(float));
      }
      std::vector<std::byte> bytes(rows.size() * static_cast<std::size_t>(bits_of(dtype)) / 8);
      TETRAD_CHECK(encode_values(ordered, dtype, bytes), "{} holds values that are too large for BF16",
                   parameter.name);
      out.write(gguf_name(piece.name), bytes);
    }
  }

  void write_nvfp4(const MappedParameter& parameter, const Nvfp4Weight& weight, GgufWriter& out) const {
    const std::int64_t blocks = weight.cols / kGgmlNvfp4Values;
    for (const Piece& piece : parameter.pieces) {
      const std::int64_t rows = piece.shape[0];
      std::vector<std::byte> bytes(static_cast<std::size_t>(rows * blocks * kGgmlNvfp4Bytes));
      parallel_for(rows, [&](std::int64_t row) {
        const std::int64_t from = piece.first_row + gguf_source_row(piece, model_, row);
        const std::byte* codes = weight.code_rows(from, 1).data();
        const std::byte* scales = weight.scale_rows(from, 1).data();
        for (std::int64_t block = 0; block < blocks; ++block)
          pack_block(codes + block * kGgmlNvfp4Values / 2, scales + block * 4,
                     bytes.data() + (row * blocks + block) * kGgmlNvfp4Bytes);
      });
      out.write(gguf_name(piece.name), bytes);
      out.write(scale_name(piece), std::as_bytes(std::span(&weight.decode_scale, 1)));
    }
  }

  const CheckpointSource& source_;
  const ModelConfig& model_;
  const Nvfp4Plan& plan_;
  Backend& cpu_;
};

}  // namespace

ExportSummary export_gguf(const CheckpointSource& source, const std::filesystem::path& out,
                          Overwrite overwrite, const Nvfp4Plan& plan, Backend& cpu) {
  std::error_code ignored;
  TETRAD_CHECK(overwrite == Overwrite::yes || !std::filesystem::exists(out, ignored),
               "{:?} is there already; choose another name, or replace it with --force", out.native());
  create_folder_of(out);
  GgufExporter exporter(source, plan, cpu);
  const Config& config = source.config();
  GgufMetadata metadata =
      gguf_metadata(config.model, source.family(), config.train.sequence, plan.size() > 0);
  for (auto& entry : gguf_tokenizer(source.tokenizer())) metadata.push_back(std::move(entry));
  const std::vector<GgufTensor> tensors = exporter.declare();
  GgufWriter writer(out, metadata, tensors);
  exporter.write(writer);
  writer.commit();
  return {tensors.size(), 1, writer.bytes()};
}

}  // namespace tetrad
