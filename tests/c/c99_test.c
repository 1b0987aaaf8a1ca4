/* SPDX-License-Identifier: Apache-2.0 */
/* The header in C99, and the shared library as a C program meets it. */

#include <stdio.h>
#include <string.h>

#include "tetrad/c/tetrad.h"

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "failed: %s (%s)\n", what, tetrad_last_error());
}

int main(void) {
  enum { rows = 16, cols = 32 };
  float values[rows * cols];
  float decoded[rows * cols];
  unsigned char codes[rows * cols / 2];
  unsigned char scales[rows * cols / 16];
  float amax = 0;
  tetrad_context* context = NULL;
  tetrad_quantizer quantizer;
  tetrad_layout layout = {.struct_size = sizeof layout};
  tetrad_matrix x = {
      .data = values, .rows = rows, .cols = cols, .row_stride = cols, .col_stride = 1, .dtype = TETRAD_F32};
  tetrad_matrix y = x;
  const tetrad_quantized quantized = {.struct_size = sizeof quantized,
                                      .codes = codes,
                                      .code_bytes = sizeof codes,
                                      .scales = scales,
                                      .scale_bytes = sizeof scales,
                                      .amax = &amax};
  const tetrad_cpu_options options = {.struct_size = sizeof options, .threads = 1};
  y.data = decoded;
  /* Values of E2M1 times 448, the largest scale: the tensor scale is 1, and nothing is lost. */
  static const float e2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (int i = 0; i < rows * cols; ++i)
    values[i] = (i % 3 == 0 && i % 8 != 0 ? -1.0f : 1.0f) * 448.0f * e2m1[i % 8];

  expect(tetrad_abi_version() == TETRAD_ABI_VERSION, "the ABI of header and library");
  expect(tetrad_cpu_context(&options, &context) == TETRAD_OK, "a context");
  expect(tetrad_quantizer_init(&quantizer, sizeof quantizer, "nvfp4", "1x16", NULL) == TETRAD_OK,
         "a quantizer");
  expect(tetrad_quantized_layout(&quantizer, rows, cols, &layout) == TETRAD_OK, "a layout");
  expect(layout.code_bytes == (int64_t)sizeof codes && layout.scale_bytes == (int64_t)sizeof scales,
         "its sizes");
  expect(tetrad_quantize(context, &x, &quantizer, NULL, &quantized, NULL) == TETRAD_OK, "quantize");
  expect(amax == 6.0f * 448.0f, "amax");
  expect(tetrad_dequantize(context, &quantizer, &quantized, &y) == TETRAD_OK, "dequantize");
  expect(memcmp(values, decoded, sizeof values) == 0, "what E2M1 has comes back");
  x.rows = -1;
  expect(tetrad_quantize(context, &x, &quantizer, NULL, &quantized, NULL) == TETRAD_BAD_INPUT, "a bad shape");
  expect(strlen(tetrad_last_error()) > 0, "a message");
  expect(tetrad_export_create(NULL, NULL) == TETRAD_BAD_INPUT && tetrad_export_warning(NULL, 0) == NULL,
         "export is there");
  tetrad_context_free(context);
  return failures;
}
