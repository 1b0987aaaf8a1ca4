// SPDX-License-Identifier: Apache-2.0
// Operations of JAX over the C interface: handlers of XLA's foreign function interface. tetrad/jax/_ops.py
// says what they are given; shapes have been checked there, by the rules of abstract evaluation.

#include "contexts.h"
#include "xla/ffi/api/ffi.h"

namespace tetrad::python {

/// Ask for the place of a call among a handler's arguments.
struct OnProcessor {};
struct OnCuda {};

}  // namespace tetrad::python

template <>
struct xla::ffi::CtxDecoding<tetrad::python::OnProcessor> {
  using Type = tetrad::python::Place;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*, DiagnosticEngine&) {
    return Type{};
  }
};

template <>
struct xla::ffi::CtxDecoding<tetrad::python::OnCuda> {
  using Type = tetrad::python::Place;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine& diagnostic) {
    const auto stream = CtxDecoding<PlatformStream<void*>>::Decode(api, context, diagnostic);
    const auto device = CtxDecoding<DeviceOrdinal>::Decode(api, context, diagnostic);
    if (!stream || !device) return std::nullopt;
    return Type{*device, *stream, 0};
  }
};

namespace tetrad::python {
namespace {

namespace ffi = xla::ffi;

std::int32_t type_of(ffi::DataType type, const char* name) {
  if (type == ffi::DataType::F32) return TETRAD_F32;
  if (type == ffi::DataType::BF16) return TETRAD_BF16;
  throw std::runtime_error(std::string("tetrad: ") + name + " is neither float32 nor bfloat16");
}

tetrad_matrix matrix_of(ffi::AnyBuffer buffer, const char* name) {
  const auto sizes = buffer.dimensions();
  if (sizes.size() != 2) throw std::runtime_error(std::string("tetrad: ") + name + " is not a matrix");
  return {buffer.untyped_data(), sizes[0], sizes[1], sizes[1], 1, type_of(buffer.element_type(), name), 0};
}

const tetrad_random_key* key_of(ffi::AnyBuffer buffer) {
  if (buffer.element_type() != ffi::DataType::U32 || buffer.element_count() != 4)
    throw std::runtime_error("tetrad: a key is uint32[4]: tetrad.jax.make_key()");
  return static_cast<const tetrad_random_key*>(buffer.untyped_data());
}

/// No exception may leave a handler.
template <typename Body>
ffi::Error guarded(const Body& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const std::exception& error) {
    return ffi::Error::InvalidArgument(error.what());
  }
}

ffi::Error linear_forward(ffi::AnyBuffer x, ffi::AnyBuffer w, ffi::AnyBuffer key,
                          ffi::Result<ffi::AnyBuffer> y, ffi::Result<ffi::AnyBuffer> saved,
                          std::int64_t precision, std::int64_t layer, const Place& place) {
  return guarded([&] {
    tetrad_linear_forward_args args = {};
    args.struct_size = sizeof(args);
    args.precision = precision_of(precision);
    args.key.layer = static_cast<std::uint32_t>(layer);
    args.random_key = key_of(key);
    args.x = matrix_of(x, "x");
    args.w = matrix_of(w, "w");
    args.y = matrix_of(*y, "y");
    args.saved_bytes = saved->size_bytes();
    if (args.saved_bytes > 0) args.saved = saved->untyped_data();
    const Context context(place);
    check(tetrad_linear_forward(context.get(), &args));
  });
}

ffi::Error linear_backward(ffi::AnyBuffer dy, ffi::AnyBuffer w, ffi::AnyBuffer x, ffi::AnyBuffer saved,
                           ffi::AnyBuffer key, ffi::Result<ffi::AnyBuffer> dx, ffi::Result<ffi::AnyBuffer> dw,
                           std::int64_t precision, std::int64_t layer, const Place& place) {
  return guarded([&] {
    tetrad_linear_backward_args args = {};
    args.struct_size = sizeof(args);
    args.precision = precision_of(precision);
    args.key.layer = static_cast<std::uint32_t>(layer);
    args.random_key = key_of(key);
    args.dy = matrix_of(dy, "dy");
    args.w = matrix_of(w, "w");
    args.dx = matrix_of(*dx, "dx");
    args.dw = matrix_of(*dw, "dw");
    if (saved.size_bytes() > 0) {
      args.saved = saved.untyped_data();
      args.saved_bytes = saved.size_bytes();
    } else {
      args.x = matrix_of(x, "x");
    }
    const Context context(place);
    check(tetrad_linear_backward(context.get(), &args));
  });
}

ffi::Error quantize(ffi::AnyBuffer x, ffi::AnyBuffer key, ffi::Result<ffi::AnyBuffer> codes,
                    ffi::Result<ffi::AnyBuffer> scales, ffi::Result<ffi::AnyBuffer> amax,
                    std::int64_t quantizer, std::int64_t tensor, const Place& place) {
  return guarded([&] {
    tetrad_quantize_options options = {};
    options.struct_size = sizeof(options);
    options.key = key_of(key);
    options.random.tensor = static_cast<std::uint32_t>(tensor);
    const tetrad_matrix input = matrix_of(x, "x");
    const tetrad_quantized out = {sizeof(out),          codes->untyped_data(),
                                  codes->size_bytes(),  scales->untyped_data(),
                                  scales->size_bytes(), static_cast<float*>(amax->untyped_data())};
    const Context context(place);
    check(tetrad_quantize(context.get(), &input, quantizer_of(quantizer), &options, &out, nullptr));
  });
}

ffi::Error dequantize(ffi::AnyBuffer codes, ffi::AnyBuffer scales, ffi::AnyBuffer amax,
                      ffi::Result<ffi::AnyBuffer> values, std::int64_t quantizer, const Place& place) {
  return guarded([&] {
    const tetrad_quantized in = {sizeof(in),          codes.untyped_data(),
                                 codes.size_bytes(),  scales.untyped_data(),
                                 scales.size_bytes(), static_cast<float*>(amax.untyped_data())};
    const tetrad_matrix out = matrix_of(*values, "values");
    const Context context(place);
    check(tetrad_dequantize(context.get(), quantizer_of(quantizer), &in, &out));
  });
}

template <typename Where>
auto forward_binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Attr<std::int64_t>("precision")
      .Attr<std::int64_t>("layer")
      .Ctx<Where>();
}

template <typename Where>
auto backward_binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Attr<std::int64_t>("precision")
      .Attr<std::int64_t>("layer")
      .Ctx<Where>();
}

template <typename Where>
auto quantize_binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Attr<std::int64_t>("quantizer")
      .Attr<std::int64_t>("tensor")
      .Ctx<Where>();
}

template <typename Where>
auto dequantize_binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Attr<std::int64_t>("quantizer")
      .Ctx<Where>();
}

}  // namespace
}  // namespace tetrad::python

// One handler of each operation for the processor, and one for CUDA, which may become part of a graph.
#define TETRAD_HANDLERS(operation, binding)                                               \
  extern "C" TETRAD_API XLA_FFI_Error* tetrad_xla_##operation##_cpu(XLA_FFI_CallFrame*);  \
  extern "C" TETRAD_API XLA_FFI_Error* tetrad_xla_##operation##_cuda(XLA_FFI_CallFrame*); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(tetrad_xla_##operation##_cpu, tetrad::python::operation,  \
                                tetrad::python::binding<tetrad::python::OnProcessor>());  \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(tetrad_xla_##operation##_cuda, tetrad::python::operation, \
                                tetrad::python::binding<tetrad::python::OnCuda>(),        \
                                {xla::ffi::Traits::kCmdBufferCompatible})

TETRAD_HANDLERS(linear_forward, forward_binding);
TETRAD_HANDLERS(linear_backward, backward_binding);
TETRAD_HANDLERS(quantize, quantize_binding);
TETRAD_HANDLERS(dequantize, dequantize_binding);
