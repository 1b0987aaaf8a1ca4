// SPDX-License-Identifier: Apache-2.0
#include "tetrad/c/boundary.h"

#include <new>

namespace tetrad::c {
namespace {

constexpr std::size_t kLongestMessage = 2048;
thread_local char last_error[kLongestMessage] = "";

void keep_message(const char* message) {
  const std::size_t length = std::min(std::strlen(message), kLongestMessage - 1);
  std::memcpy(last_error, message, length);
  last_error[length] = '\0';
}

DType dtype_of(std::int32_t dtype, const char* name) {
  TETRAD_CHECK(dtype == TETRAD_F32 || dtype == TETRAD_BF16, "{}: dtype {} is not TETRAD_F32 or TETRAD_BF16",
               name, dtype);
  return dtype == TETRAD_F32 ? DType::f32 : DType::bf16;
}

SignMask signs_of(const tetrad_quantizer& quantizer) {
  const std::uint32_t(&words)[4] = quantizer.long_signs;
  const SignMask mask = {{words[0], words[1], words[2], words[3]}};
  return mask == kNoSigns ? repeated_signs(quantizer.signs) : mask;
}

template <typename View>
View view_of(const tetrad_matrix& matrix, const char* name) {
  const DType dtype = dtype_of(matrix.dtype, name);
  TETRAD_CHECK(matrix.rows >= 0 && matrix.cols >= 0, "{}: {} x {} is no shape", name, matrix.rows,
               matrix.cols);
  TETRAD_CHECK(matrix.data != nullptr || matrix.rows == 0 || matrix.cols == 0, "{}: data is NULL", name);
  const auto alignment = static_cast<std::uintptr_t>(bits_of(dtype) / 8);
  TETRAD_CHECK(reinterpret_cast<std::uintptr_t>(matrix.data) % alignment == 0,
               "{}: data is not aligned to its elements", name);
  const bool row_major = matrix.col_stride == 1 && (matrix.rows <= 1 || matrix.row_stride >= matrix.cols);
  const bool col_major = matrix.row_stride == 1 && (matrix.cols <= 1 || matrix.col_stride >= matrix.rows);
  TETRAD_CHECK(row_major || col_major,
               "{}: strides {} and {} of a {} x {} matrix: one must be 1, and the other step over it", name,
               matrix.row_stride, matrix.col_stride, matrix.rows, matrix.cols);
  return {matrix.data, dtype, matrix.rows, matrix.cols, matrix.row_stride, matrix.col_stride};
}

}  // namespace

tetrad_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    keep_message(error.what());
    return error.exit_code() == ExitCode::bad_input ? TETRAD_BAD_INPUT : TETRAD_FAILURE;
  } catch (const std::bad_alloc&) {
    keep_message("out of memory");
    return TETRAD_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep_message(error.what());
  } catch (...) {
    keep_message("unknown failure");
  }
  return TETRAD_FAILURE;
}

MatrixView input_matrix(const tetrad_matrix& matrix, const char* name) {
  return view_of<MatrixView>(matrix, name);
}
MutableMatrixView output_matrix(const tetrad_matrix& matrix, const char* name) {
  return view_of<MutableMatrixView>(matrix, name);
}

RandomKey key_by_value(const tetrad_context& context, const tetrad_random_key* in_memory,
                       const RandomKey& given) {
  if (in_memory == nullptr || context.on_device) return given;
  return {in_memory->seed, in_memory->step, in_memory->microbatch};
}

const RandomKey* key_on_device(const tetrad_context& context, const tetrad_random_key* in_memory) {
  static_assert(sizeof(RandomKey) == sizeof(tetrad_random_key) &&
                offsetof(RandomKey, microbatch) == offsetof(tetrad_random_key, microbatch));
  return context.on_device ? reinterpret_cast<const RandomKey*>(in_memory) : nullptr;
}

QuantSpec quant_spec(const tetrad_quantizer* quantizer, const char* name) {
  const tetrad_quantizer known = read_struct(quantizer, name);
  TETRAD_CHECK(known.format >= TETRAD_NVFP4 && known.format <= TETRAD_FP8, "{}: there is no format {}", name,
               known.format);
  TETRAD_CHECK(known.rounding >= TETRAD_NEAREST && known.rounding <= TETRAD_STOCHASTIC_HARDWARE,
               "{}: there is no rounding {}", name, known.rounding);
  TETRAD_CHECK(known.scale >= TETRAD_SCALE_STANDARD && known.scale <= TETRAD_SCALE_EDEN,
               "{}: there is no scale {}", name, known.scale);
  TETRAD_CHECK(known.signs <= 0xFFFFu, "{}: signs are 16 bits, not {:#x}", name, known.signs);
  return {.format = static_cast<Format>(known.format - TETRAD_NVFP4),
          .block = {known.block_rows, known.block_cols},
          .axis = known.axis,
          .rounding = static_cast<Rounding>(known.rounding),
          .hadamard = known.hadamard,
          .signs = signs_of(known),
          .scaling = static_cast<Scaling>(known.scale)};
}

}  // namespace tetrad::c

const char* tetrad_last_error(void) { return tetrad::c::last_error; }
