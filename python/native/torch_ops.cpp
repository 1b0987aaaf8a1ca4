// SPDX-License-Identifier: Apache-2.0
// Operations of PyTorch over the C interface. Their signatures are in tetrad/torch/_ops.py, which also has
// what they give to tensors without data.

#include <array>
#include <string>

#include "contexts.h"
#include "torch_abi.h"

namespace tetrad::python {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error("tetrad: " + why); }

/// A tensor on the stack of arguments, which is ours to free.
class Argument : public OwnedTensor {
 public:
  Argument(TorchValue value, const char* name)
      : OwnedTensor(reinterpret_cast<TorchTensor*>(value)), name_(name) {
    check_torch(torch().aoti_torch_get_data_ptr(get(), &data_), name);
    check_torch(torch().aoti_torch_get_dim(get(), &dim_), name);
    check_torch(torch().aoti_torch_get_sizes(get(), &sizes_), name);
    check_torch(torch().aoti_torch_get_strides(get(), &strides_), name);
    check_torch(torch().aoti_torch_get_dtype(get(), &dtype_), name);
    check_torch(torch().aoti_torch_get_device_type(get(), &device_type_), name);
    check_torch(torch().aoti_torch_get_device_index(get(), &device_index_), name);
  }

  const void* data() const { return data_; }
  std::int32_t dtype() const { return dtype_; }
  std::int64_t elements() const {
    std::int64_t count = 1;
    for (std::int64_t i = 0; i < dim_; ++i) count *= sizes_[i];
    return count;
  }

  Place place() const {
    if (device_type_ == torch().aoti_torch_device_type_cpu()) {
      std::uint32_t threads = 0;
      check_torch(torch().torch_get_num_threads(&threads), "threads");
      return {-1, nullptr, static_cast<std::int32_t>(threads)};
    }
    if (device_type_ != torch().aoti_torch_device_type_cuda() ||
        torch().aoti_torch_get_current_cuda_stream == nullptr)
      refuse(name_ + " is on a device that this library does not know: use the CPU or CUDA");
    Place place{device_index_, nullptr, 0};
    check_torch(torch().aoti_torch_get_current_cuda_stream(device_index_, &place.stream), "stream");
    return place;
  }
  void expect_beside(const Argument& other) const {
    if (device_type_ != other.device_type_ || device_index_ != other.device_index_)
      refuse(name_ + " and " + other.name_ + " are on different devices");
  }

  tetrad_matrix matrix() const {
    if (dim_ != 2) refuse(name_ + " has " + std::to_string(dim_) + " dimensions, not 2");
    std::int32_t type = 0;
    if (dtype_ == torch().aoti_torch_dtype_float32()) type = TETRAD_F32;
    if (dtype_ == torch().aoti_torch_dtype_bfloat16()) type = TETRAD_BF16;
    if (type == 0) refuse(name_ + " is neither float32 nor bfloat16: convert it");
    return {data_, sizes_[0], sizes_[1], strides_[0], strides_[1], type, 0};
  }
  /// The two words of a random key: seed; step and microbatch.
  const tetrad_random_key* key() const {
    if (dtype_ != torch().aoti_torch_dtype_int64() || dim_ != 1 || sizes_[0] != 2 || strides_[0] != 1)
      refuse(name_ + " is not a key, which is int64 of 2 elements: tetrad.torch.make_key()");
    return static_cast<const tetrad_random_key*>(data_);
  }
  void* bytes(std::int64_t expected) const {
    if (dtype_ != torch().aoti_torch_dtype_uint8() || elements() != expected)
      refuse(name_ + " is not " + std::to_string(expected) + " bytes");
    std::int64_t dense = 1;
    for (std::int64_t i = dim_; i-- > 0; dense *= sizes_[i])
      if (sizes_[i] != 1 && strides_[i] != dense) refuse(name_ + " is not contiguous");
    return data_;
  }

  /// A row-major tensor beside this one.
  template <std::size_t Dim>
  OwnedTensor make(const std::array<std::int64_t, Dim>& sizes, std::int32_t dtype) const {
    std::array<std::int64_t, Dim> strides{};
    std::int64_t stride = 1;
    for (std::size_t i = Dim; i-- > 0; stride *= sizes[i]) strides[i] = stride;
    TorchTensor* tensor = nullptr;
    check_torch(torch().aoti_torch_empty_strided(Dim, sizes.data(), strides.data(), dtype, device_type_,
                                                 device_index_, &tensor),
                "allocation");
    return OwnedTensor(tensor);
  }

 private:
  std::string name_;
  void* data_ = nullptr;
  std::int64_t dim_ = 0;
  std::int64_t* sizes_ = nullptr;
  std::int64_t* strides_ = nullptr;
  std::int32_t dtype_ = 0;
  std::int32_t device_type_ = 0;
  std::int32_t device_index_ = 0;
};

template <typename T = void>
T* data_of(const OwnedTensor& tensor) {
  void* data = nullptr;
  check_torch(torch().aoti_torch_get_data_ptr(tensor.get(), &data), "data");
  return static_cast<T*>(data);
}

tetrad_matrix row_major(void* data, std::int64_t rows, std::int64_t cols, std::int32_t dtype) {
  return {data, rows, cols, cols, 1, dtype, 0};
}

std::int32_t dtype_of(std::int32_t type) {
  return type == TETRAD_F32 ? torch().aoti_torch_dtype_float32() : torch().aoti_torch_dtype_bfloat16();
}

std::int32_t layer_of(TorchValue value) {
  const auto layer = static_cast<std::int64_t>(value);
  if (layer < 0 || layer > (std::int64_t{1} << 28))
    refuse("layer " + std::to_string(layer) + " is out of range");
  return static_cast<std::int32_t>(layer);
}

/// (x, w, key, precision, layer, save) -> (y, saved)
void linear_forward(TorchValue* stack, std::uint64_t, std::uint64_t) {
  const Argument x(stack[0], "x"), w(stack[1], "w"), key(stack[2], "key");
  for (const Argument* other : {&w, &key}) other->expect_beside(x);
  tetrad_linear_forward_args args = {};
  args.struct_size = sizeof(args);
  args.precision = precision_of(static_cast<std::int64_t>(stack[3]));
  args.key.layer = static_cast<std::uint32_t>(layer_of(stack[4]));
  args.random_key = key.key();
  args.x = x.matrix();
  args.w = w.matrix();
  std::size_t bytes = 0;
  if (stack[5] != 0) check(tetrad_linear_saved_bytes(args.precision, args.x.rows, args.x.cols, &bytes));
  OwnedTensor y = x.make<2>({args.x.rows, args.w.rows}, x.dtype());
  OwnedTensor saved = x.make<1>({static_cast<std::int64_t>(bytes)}, torch().aoti_torch_dtype_uint8());
  args.y = row_major(data_of(y), args.x.rows, args.w.rows, args.x.dtype);
  if (bytes > 0) args.saved = data_of(saved);
  args.saved_bytes = bytes;
  const Context context(x.place());
  check(tetrad_linear_forward(context.get(), &args));
  stack[0] = y.release();
  stack[1] = saved.release();
}

/// (dy, w, x, saved, key, precision, layer, wanted) -> (dx, dw); what is not wanted is empty. `wanted`: 1 is
/// dx, 2 is dw.
void linear_backward(TorchValue* stack, std::uint64_t, std::uint64_t) {
  const Argument dy(stack[0], "dy"), w(stack[1], "w"), x(stack[2], "x"), saved(stack[3], "saved"),
      key(stack[4], "key");
  for (const Argument* other : {&w, &x, &saved, &key}) other->expect_beside(dy);
  const bool wants_dx = (stack[7] & 1) != 0;
  const bool wants_dw = (stack[7] & 2) != 0;
  tetrad_linear_backward_args args = {};
  args.struct_size = sizeof(args);
  args.precision = precision_of(static_cast<std::int64_t>(stack[5]));
  args.key.layer = static_cast<std::uint32_t>(layer_of(stack[6]));
  args.random_key = key.key();
  args.dy = dy.matrix();
  args.w = w.matrix();
  const std::int64_t in = args.w.cols;
  OwnedTensor dx = dy.make<2>({wants_dx ? args.dy.rows : 0, in}, dy.dtype());
  OwnedTensor dw = dy.make<2>({wants_dw ? args.dy.cols : 0, in}, w.dtype());
  if (wants_dx) args.dx = row_major(data_of(dx), args.dy.rows, in, args.dy.dtype);
  if (wants_dw) {
    args.dw = row_major(data_of(dw), args.dy.cols, in, args.w.dtype);
    if (saved.elements() > 0) {
      args.saved = saved.bytes(saved.elements());
      args.saved_bytes = static_cast<std::size_t>(saved.elements());
    } else {
      args.x = x.matrix();
    }
  }
  const Context context(dy.place());
  check(tetrad_linear_backward(context.get(), &args));
  stack[0] = dx.release();
  stack[1] = dw.release();
}

/// (x, key, quantizer, tensor) -> (codes, scales, amax), all bytes but the last
void quantize(TorchValue* stack, std::uint64_t, std::uint64_t) {
  const Argument x(stack[0], "x"), key(stack[1], "key");
  key.expect_beside(x);
  const tetrad_quantizer* const quantizer = quantizer_of(static_cast<std::int64_t>(stack[2]));
  const tetrad_matrix input = x.matrix();
  tetrad_layout layout = {};
  layout.struct_size = sizeof(layout);
  check(tetrad_quantized_layout(quantizer, input.rows, input.cols, &layout));
  const std::int32_t byte = torch().aoti_torch_dtype_uint8();
  const std::int64_t per_row = layout.rows == 0 ? 0 : layout.code_bytes / layout.rows;
  OwnedTensor codes = x.make<2>({layout.rows, per_row}, byte);
  OwnedTensor scales = x.make<1>({layout.scale_bytes}, byte);
  OwnedTensor amax = x.make<1>({1}, torch().aoti_torch_dtype_float32());
  tetrad_quantize_options options = {};
  options.struct_size = sizeof(options);
  options.key = key.key();
  options.random.tensor = static_cast<std::uint32_t>(stack[3]);
  const tetrad_quantized out = {sizeof(out),
                                data_of(codes),
                                static_cast<std::size_t>(layout.code_bytes),
                                data_of(scales),
                                static_cast<std::size_t>(layout.scale_bytes),
                                data_of<float>(amax)};
  const Context context(x.place());
  check(tetrad_quantize(context.get(), &input, quantizer, &options, &out, nullptr));
  stack[0] = codes.release();
  stack[1] = scales.release();
  stack[2] = amax.release();
}

/// (codes, scales, amax, quantizer, rows, cols, bf16) -> values [rows, cols], as a product reads them
void dequantize(TorchValue* stack, std::uint64_t, std::uint64_t) {
  const Argument codes(stack[0], "codes"), scales(stack[1], "scales"), amax(stack[2], "amax");
  for (const Argument* other : {&scales, &amax}) other->expect_beside(codes);
  if (amax.dtype() != torch().aoti_torch_dtype_float32() || amax.elements() != 1)
    refuse("amax is not one float32");
  const tetrad_quantizer* const quantizer = quantizer_of(static_cast<std::int64_t>(stack[3]));
  const auto rows = static_cast<std::int64_t>(stack[4]);
  const auto cols = static_cast<std::int64_t>(stack[5]);
  const std::int32_t type = stack[6] != 0 ? TETRAD_BF16 : TETRAD_F32;
  tetrad_layout layout = {};
  layout.struct_size = sizeof(layout);
  const bool transposed = quantizer->axis == 0;
  check(tetrad_quantized_layout(quantizer, transposed ? cols : rows, transposed ? rows : cols, &layout));
  const tetrad_quantized in = {sizeof(in),
                               codes.bytes(layout.code_bytes),
                               static_cast<std::size_t>(layout.code_bytes),
                               scales.bytes(layout.scale_bytes),
                               static_cast<std::size_t>(layout.scale_bytes),
                               const_cast<float*>(static_cast<const float*>(amax.data()))};  // only read
  OwnedTensor values = codes.make<2>({rows, cols}, dtype_of(type));
  const tetrad_matrix out = row_major(data_of(values), rows, cols, type);
  const Context context(codes.place());
  check(tetrad_dequantize(context.get(), quantizer, &in, &out));
  stack[0] = values.release();
}

}  // namespace

void register_torch_kernels() {
  constexpr std::uint64_t kVersion =
      (2ull << 56) | (11ull << 48);  // of the interface that we are written for
  for (const char* device : {"CPU", "CUDA"}) {
    TorchLibrary* library = nullptr;  // for the life of the process
    check_torch(torch().aoti_torch_library_init_impl("tetrad", device, __FILE__, __LINE__, &library), device);
    const auto add = [&](const char* name, TorchKernel kernel) {
      check_torch(torch().torch_library_impl(library, name, kernel, kVersion), name);
    };
    add("linear_forward", linear_forward);
    add("linear_backward", linear_backward);
    add("quantize", quantize);
    add("dequantize", dequantize);
  }
}

}  // namespace tetrad::python
