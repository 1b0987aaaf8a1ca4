/* SPDX-License-Identifier: Apache-2.0 */
/* Quantizes a matrix and writes its bytes: codes, scales, amax.
 * Usage: quantize_c VALUES ROWS COLS FORMAT BLOCK ROUNDING SEED TENSOR > BYTES
 * VALUES is a file of ROWS x COLS floats; SEED and TENSOR name the random bits of stochastic rounding. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tetrad/c/tetrad.h>

static void check(tetrad_status status) {
  if (status == TETRAD_OK) return;
  fprintf(stderr, "quantize_c: %s\n", tetrad_last_error());
  exit(status);
}

static void* allocate(size_t bytes) {
  void* memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) {
    fprintf(stderr, "quantize_c: out of memory\n");
    exit(1);
  }
  return memory;
}

static float* read_values(const char* path, size_t count) {
  float* values = allocate(count * sizeof *values);
  FILE* file = fopen(path, "rb");
  if (file == NULL || fread(values, sizeof *values, count, file) != count) {
    fprintf(stderr, "quantize_c: cannot read %lu floats from %s\n", (unsigned long)count, path);
    exit(1);
  }
  fclose(file);
  return values;
}

int main(int argc, char** argv) {
  if (argc != 9) {
    fprintf(stderr, "usage: quantize_c VALUES ROWS COLS FORMAT BLOCK ROUNDING SEED TENSOR > BYTES\n");
    return 2;
  }
  const int64_t rows = atol(argv[2]);
  const int64_t cols = atol(argv[3]);
  tetrad_quantizer quantizer;
  check(tetrad_quantizer_init(&quantizer, sizeof quantizer, argv[4], argv[5], argv[6]));
  tetrad_layout layout = {.struct_size = sizeof layout};
  check(tetrad_quantized_layout(&quantizer, rows, cols, &layout));

  float* values = read_values(argv[1], (size_t)rows * (size_t)cols);
  const tetrad_matrix x = {
      .data = values, .rows = rows, .cols = cols, .row_stride = cols, .col_stride = 1, .dtype = TETRAD_F32};
  float amax = 0;
  const tetrad_quantized quantized = {.struct_size = sizeof quantized,
                                      .codes = allocate((size_t)layout.code_bytes),
                                      .code_bytes = (size_t)layout.code_bytes,
                                      .scales = allocate((size_t)layout.scale_bytes),
                                      .scale_bytes = (size_t)layout.scale_bytes,
                                      .amax = &amax};
  tetrad_quantize_options options = {.struct_size = sizeof options};
  options.random.seed = strtoull(argv[7], NULL, 10);
  options.random.tensor = (uint32_t)strtoul(argv[8], NULL, 10);
  tetrad_quantize_stats stats = {.struct_size = sizeof stats};

  tetrad_context* context = NULL;
  check(tetrad_cpu_context(NULL, &context));
  check(tetrad_quantize(context, &x, &quantizer, &options, &quantized, &stats));
  tetrad_context_free(context);

  fprintf(stderr, "tetrad %s: %ld x %ld values in %ld bytes of codes and %ld of scales, noise/signal %.4g\n",
          tetrad_version(), (long)rows, (long)cols, (long)layout.code_bytes, (long)layout.scale_bytes,
          stats.noise / stats.signal);
  fwrite(quantized.codes, 1, quantized.code_bytes, stdout);
  fwrite(quantized.scales, 1, quantized.scale_bytes, stdout);
  fwrite(&amax, sizeof amax, 1, stdout);
  free(quantized.codes);
  free(quantized.scales);
  free(values);
  return 0;
}
