// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/hf_export.h"

#include <map>
#include <string>
#include <vector>

#include "tetrad/c/boundary.h"

using namespace tetrad;  // NOLINT(google-build-using-namespace): everything here is ours

namespace tetrad::c {

/// The caller's tensors, which it gives one at a time.
class CallersTensors final : public TensorTable {
 public:
  explicit CallersTensors(const tetrad_export_options& options) : read_(options.read), user_(options.user) {}

  void add(TensorInfo info) {
    const std::string name = info.name;
    TETRAD_CHECK(tensors_.emplace(name, std::move(info)).second, "{}: the tensor {} is there twice", where_,
                 quoted_name(name));
  }

  const TensorInfo* find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, info] : tensors_) names.push_back(name);
    return names;
  }
  const std::string& where() const override { return where_; }
  std::span<const std::byte> bytes(std::string_view name, std::vector<std::byte>& memory) const override {
    const TensorInfo& info = *find(name);
    memory.resize(info.end);
    if (read_(user_, info.name.c_str(), memory.data(), memory.size()) != 0)
      throw Error(fmt::format("{}: the tensor {} could not be read", where_, quoted_name(name)),
                  ExitCode::failure);
    return memory;
  }

 private:
  decltype(tetrad_export_options::read) read_;
  void* user_;
  std::string where_ = "the model";
  std::map<std::string, TensorInfo, std::less<>> tensors_;
};

namespace {

DType weight_type(const char* name) {
  if (name == nullptr) return DType::bf16;
  const std::string_view said = name;
  if (said == "bf16") return DType::bf16;
  if (said == "f16") return DType::f16;
  if (said == "f32") return DType::f32;
  fail("there is no type {:?} of weights: choose bf16, f16 or f32", said);
}

}  // namespace
}  // namespace tetrad::c

struct tetrad_export {
  explicit tetrad_export(const tetrad_export_options& options) : tensors(options) {}

  std::string folder;
  HfExport what;
  c::CallersTensors tensors;
  std::map<std::string, HfLayer> layers;
  std::vector<std::string> warnings;
};

tetrad_status tetrad_export_create(const tetrad_export_options* options, tetrad_export** out) {
  return c::guarded([&] {
    tetrad_export*& result = c::required(out, "out");
    const tetrad_export_options known = c::read_struct(options, "options");
    TETRAD_CHECK(known.read != nullptr, "options: read is NULL");
    auto made = std::make_unique<tetrad_export>(known);
    made->folder = &c::required(known.folder, "options: folder");
    made->what.format = &c::required(known.format, "options: format");
    made->what.joined_scales = known.joined_scales != 0;
    ExportOptions& chosen = made->what.options;
    chosen.dtype = c::weight_type(known.dtype);
    if (known.shard_bytes > 0) chosen.shard_bytes = known.shard_bytes;
    chosen.overwrite = known.overwrite != 0 ? Overwrite::yes : Overwrite::no;
    chosen.version = tetrad_version();
    result = made.release();
  });
}

void tetrad_export_free(tetrad_export* what) { delete what; }

tetrad_status tetrad_export_tensor(tetrad_export* what, const char* name, int32_t dtype, const int64_t* shape,
                                   int32_t dimensions) {
  return c::guarded([&] {
    tetrad_export& known = c::required(what, "export");
    TensorInfo info;
    info.name = &c::required(name, "name");
    TETRAD_CHECK(dtype == TETRAD_F32 || dtype == TETRAD_BF16,
                 "the tensor {}: dtype {} is not TETRAD_F32 or TETRAD_BF16", quoted_name(info.name), dtype);
    info.dtype = dtype == TETRAD_F32 ? DType::f32 : DType::bf16;
    TETRAD_CHECK(dimensions >= 0 && dimensions <= 8, "the tensor {}: {} dimensions", quoted_name(info.name),
                 dimensions);
    if (dimensions > 0) info.shape.assign(&c::required(shape, "shape"), shape + dimensions);
    info.end = checked_tensor_bytes("the tensor " + quoted_name(info.name), info.dtype, info.shape);
    known.tensors.add(std::move(info));
  });
}

tetrad_status tetrad_export_layer(tetrad_export* what, const char* name, const tetrad_precision* precision,
                                  float input_amax) {
  return c::guarded([&] {
    tetrad_export& known = c::required(what, "export");
    const std::string module = &c::required(name, "name");
    const bool is_new =
        known.layers.emplace(module, HfLayer{c::required(precision, "precision").precision, input_amax})
            .second;
    TETRAD_CHECK(is_new, "the layer {} is there twice", quoted_name(module));
  });
}

tetrad_status tetrad_export_write(tetrad_export* what, tetrad_context* context, const char* out) {
  return c::guarded([&] {
    tetrad_export& known = c::required(what, "export");
    tetrad_context& where = c::required(context, "context");
    TETRAD_CHECK(!where.on_device, "context: files are written by a context of the CPU");
    const std::string target = &c::required(out, "out");
    TETRAD_CHECK(!target.empty(), "out is empty: name a folder, or for gguf a file");
    known.warnings =
        export_hf_model(known.folder, known.tensors, known.layers, target, known.what, *where.backend)
            .warnings;
  });
}

const char* tetrad_export_warning(const tetrad_export* what, size_t index) {
  return what != nullptr && index < what->warnings.size() ? what->warnings[index].c_str() : nullptr;
}
