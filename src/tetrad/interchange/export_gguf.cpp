// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/export_gguf.h"

#include <cmath>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/interchange/gguf_file.h"
#include "tetrad/interchange/gguf_model.h"
#include "tetrad/interchange/gguf_tokenizer.h"
#include "tetrad/interchange/gguf_writer.h"
#include "tetrad/interchange/values.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

class GgufExporter {
 public:
  GgufExporter(const ExportSource& source, const Nvfp4Plan& plan, Backend& cpu)
      : source_(source), model_(source.model()), plan_(plan), cpu_(cpu) {}

  std::vector<GgufTensor> declare() const {
    std::vector<GgufTensor> tensors;
    for (const MappedParameter& parameter : source_.parameters())
      for (const Piece& piece : parameter.pieces) {
        const GgmlType type = type_of(parameter);
        const std::string& name = piece.names.gguf;
        tensors.push_back({name, type, gguf_shape(piece, model_)});
        if (type == GgmlType::nvfp4) tensors.push_back({gguf_scale_name(name), GgmlType::f32, {1}});
      }
    if (const auto factors = gguf_rope_factors(model_); !factors.empty())
      tensors.push_back({kGgufRopeFactors, GgmlType::f32, {std::int64_t(factors.size())}});
    return tensors;
  }

  void write(GgufWriter& out, const Progress& progress) {
    std::int64_t done = 0;
    for (const MappedParameter& parameter : source_.parameters()) {
      write(parameter, source_.values(parameter), out);
      if (progress) progress(++done, std::ssize(source_.parameters()));
    }
    const std::vector<float> factors = gguf_rope_factors(model_);
    if (!factors.empty()) out.write(kGgufRopeFactors, std::as_bytes(std::span(factors)));
  }

 private:
  GgmlType type_of(const MappedParameter& parameter) const {
    if (plan_.find(parameter) != nullptr)
      return parameter.columns() % kGgmlNvfp4Values == 0 ? GgmlType::nvfp4 : GgmlType::f32;
    const bool is_small = parameter.shape.size() < 2 || parameter.name.ends_with("conv.weight");
    return is_small ? GgmlType::f32 : GgmlType::bf16;
  }

  void write(const MappedParameter& parameter, std::vector<float> values, GgufWriter& out) {
    const GgmlType type = type_of(parameter);
    if (const QuantSpec* spec = plan_.find(parameter)) {
      const Nvfp4Weight weight = quantize_weight(cpu_, parameter, *spec, values);
      if (type == GgmlType::nvfp4) return write_nvfp4(parameter, weight, out);
      decode_nvfp4(cpu_.threads(), weight.codes, weight.scales, weight.scale.decode, values);
    }
    if (gguf_has_negative_exponential(parameter.pieces.front()))
      for (float& value : values) value = static_cast<float>(-std::exp(double{value}));
    write_dense(parameter, values, type, out);
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
      TETRAD_CHECK(
          encode_values(cpu_.threads(), ordered, dtype, bytes),
          "{} holds values that are too large for {}, as GGUF has it: export it as hf with the type f32",
          parameter.name, name_of(dtype));
      out.write(piece.names.gguf, bytes);
    }
  }

  void write_nvfp4(const MappedParameter& parameter, const Nvfp4Weight& weight, GgufWriter& out) const {
    const std::int64_t blocks = weight.cols / kGgmlNvfp4Values;
    for (const Piece& piece : parameter.pieces) {
      const std::int64_t rows = piece.shape[0];
      std::vector<std::byte> bytes(static_cast<std::size_t>(rows * blocks * kGgmlNvfp4Bytes));
      cpu_.threads().parallel_for(rows, [&](std::int64_t row) {
        const std::int64_t from = piece.first_row + gguf_source_row(piece, model_, row);
        const std::byte* codes = weight.code_rows(from, 1).data();
        const std::byte* scales = weight.scale_rows(from, 1).data();
        for (std::int64_t block = 0; block < blocks; ++block)
          pack_ggml_block(codes + block * kGgmlNvfp4Values / 2,
                          scales + block * kGgmlNvfp4Values / nvfp4::kBlock,
                          bytes.data() + (row * blocks + block) * kGgmlNvfp4Bytes);
      });
      const std::string& name = piece.names.gguf;
      out.write(name, bytes);
      out.write(gguf_scale_name(name), std::as_bytes(std::span(&weight.scale.decode, 1)));
    }
  }

  const ExportSource& source_;
  const ModelConfig& model_;
  const Nvfp4Plan& plan_;
  Backend& cpu_;
};

/// A file of another kind is not replaced, whatever was asked for.
void check_target(const std::filesystem::path& out, Overwrite overwrite) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(out, ignored))) return;
  TETRAD_CHECK(overwrite == Overwrite::yes,
               "{:?} is there already; choose another name, or replace it (--force, overwrite)",
               out.native());
  TETRAD_CHECK(is_gguf_file(out),
               "{:?} is there and is no GGUF file: it is not replaced; choose another name", out.native());
}

}  // namespace

ExportSummary export_gguf(const ExportSource& source, const std::filesystem::path& out,
                          const ExportOptions& options, const Nvfp4Plan& plan, Backend& cpu) {
  check_target(out, options.overwrite);
  const FoldersAbove folders(out);
  GgufExporter exporter(source, plan, cpu);
  GgufMetadata metadata = gguf_metadata(source.model(), source.family(), source.context(), plan.size() > 0);
  for (auto& entry : gguf_tokenizer(source.tokenizer(), source.model().vocab,
                                    {source.begin_of_text(), source.end_of_text()}))
    metadata.push_back(std::move(entry));
  const std::vector<GgufTensor> tensors = exporter.declare();
  GgufWriter writer(out, metadata, tensors);
  exporter.write(writer, options.progress);
  writer.commit();
  return {tensors.size(), 1, writer.bytes(), options.warnings};
}

}  // namespace tetrad
