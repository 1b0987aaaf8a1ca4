// SPDX-License-Identifier: Apache-2.0
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TETRAD_C_TETRAD_H
#define TETRAD_C_TETRAD_H
/* Tetrad's C interface: quantizers, the linear layer and export, for programs and for bindings of other
 * languages.
 *
 * Every function returns a status; tetrad_last_error() has the message of the last one that failed on this
 * thread. No C++ exception leaves a function, and each leaves the thread's floating-point environment as it
 * was; inside, rounding is to nearest and subnormal numbers count.
 *
 * The caller owns all data. Pointers refer to memory of the context: the program's, or the CUDA device's,
 * where work is put on the context's stream and is done when the stream gets there.
 *
 * Compatibility: as long as TETRAD_ABI_VERSION stays, what was compiled with an older header works with a
 * newer library. Structs that may grow begin with their size; contexts and precisions are opaque. A struct is
 * filled by its _init function or with zeros, and gets its struct_size from sizeof. */

/* NOLINTBEGIN(modernize-*,readability-identifier-naming): this is C. */
#include <stddef.h>
#include <stdint.h>

#define TETRAD_VERSION_MAJOR 0
#define TETRAD_VERSION_MINOR 1
#define TETRAD_VERSION_PATCH 0
#define TETRAD_ABI_VERSION 1

#if defined(__GNUC__)
#define TETRAD_API __attribute__((visibility("default")))
#else
#define TETRAD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- Status --------------------------------------------------------------------------------------------- */

typedef int32_t tetrad_status;
enum {
  TETRAD_OK = 0,
  TETRAD_FAILURE = 1,      /* a broken device, a bug */
  TETRAD_BAD_INPUT = 2,    /* the arguments make no sense; nothing was written */
  TETRAD_OUT_OF_MEMORY = 3 /* of the program */
};

/* "0.1.0". */
TETRAD_API const char* tetrad_version(void);
/* TETRAD_ABI_VERSION of the library. */
TETRAD_API int32_t tetrad_abi_version(void);
/* What the last call that failed on this thread said; valid until the next one fails. Never NULL. */
TETRAD_API const char* tetrad_last_error(void);

/* --- Contexts ------------------------------------------------------------------------------------------- */

/* Hardware, and what operations keep between calls. There may be several in a process; each is used by one
 * thread at a time. */
typedef struct tetrad_context tetrad_context;

typedef struct tetrad_cpu_options {
  size_t struct_size;
  int32_t threads;             /* 0: TETRAD_THREADS, or as many as there are cores */
  const char* instruction_set; /* NULL: the best that this processor has */
} tetrad_cpu_options;

typedef struct tetrad_cuda_options {
  size_t struct_size;
  int32_t device;
  void* stream; /* a cudaStream_t; NULL: a stream of its own */
} tetrad_cuda_options;

/* `options` may be NULL. */
TETRAD_API tetrad_status tetrad_cpu_context(const tetrad_cpu_options* options, tetrad_context** out);
/* TETRAD_BAD_INPUT where there is no such device, or where the library was built without CUDA. */
TETRAD_API tetrad_status tetrad_cuda_context(const tetrad_cuda_options* options, tetrad_context** out);
/* Waits for what is under way. NULL is allowed. */
TETRAD_API void tetrad_context_free(tetrad_context* context);
/* Waits for what is under way. */
TETRAD_API tetrad_status tetrad_synchronize(tetrad_context* context);

/* --- Matrices ------------------------------------------------------------------------------------------- */

enum { TETRAD_F32 = 1, TETRAD_BF16 = 2, TETRAD_E4M3 = 3, TETRAD_E8M0 = 4 };

/* Borrowed; will never change. One of the strides is 1 and the other at least the extent that it steps over.
 * A matrix that is only read may point to constant memory. */
typedef struct tetrad_matrix {
  void* data;
  int64_t rows;
  int64_t cols;
  int64_t row_stride; /* in elements */
  int64_t col_stride;
  int32_t dtype; /* TETRAD_F32 or TETRAD_BF16 */
  int32_t reserved;
} tetrad_matrix;

/* --- Quantizers ----------------------------------------------------------------------------------------- */

enum { TETRAD_NVFP4 = 1, TETRAD_MXFP4 = 2, TETRAD_FP8 = 3 };
enum { TETRAD_NEAREST = 0, TETRAD_STOCHASTIC = 1, TETRAD_STOCHASTIC_HARDWARE = 2 };
/* How block scales are found: the format's own way (NVFP4 to nearest, MXFP4 rounded down); for NVFP4 the
 * better of two (4/6) or the best of six (search); for MXFP4 rounded up, so that nothing saturates; for NVFP4
 * with a transform corrected and drawn (MS-EDEN). */
enum {
  TETRAD_SCALE_STANDARD = 0,
  TETRAD_SCALE_4_6 = 1,
  TETRAD_SCALE_SEARCH = 2,
  TETRAD_SCALE_UP = 3,
  TETRAD_SCALE_EDEN = 4
};
#define TETRAD_FIXED_SIGNS 0xD7E8u

/* How a matrix is quantized. docs/numerics.md defines each to the bit. */
typedef struct tetrad_quantizer {
  size_t struct_size;
  int32_t format;
  int32_t block_rows; /* elements that share a scale; 0 x 0: one scale for the tensor (FP8) */
  int32_t block_cols;
  int32_t axis; /* that blocks run along; 0: the transposed matrix is quantized */
  int32_t rounding;
  int32_t hadamard;       /* size of the transform along the blocks; 0: none */
  uint32_t signs;         /* of the transform: bit i set means -1, repeated every 16 */
  int32_t scale;          /* TETRAD_SCALE_…; MXFP4 recipes have TETRAD_SCALE_UP */
  uint32_t long_signs[4]; /* 128 signs in the place of those 16; all zero: not used */
} tetrad_quantizer;

/* By name: format "nvfp4", "mxfp4", "fp8"; block "1x16", "16x16", "1x32", "32x32", "1x128", "128x128",
 * "tensor", or NULL for the format's usual one; rounding "nearest", "stochastic", "stochastic-hardware", or
 * NULL for nearest. Blocks run along axis 1, without transform. `struct_size` is sizeof(tetrad_quantizer). */
TETRAD_API tetrad_status tetrad_quantizer_init(tetrad_quantizer* quantizer, size_t struct_size,
                                               const char* format, const char* block, const char* rounding);

/* Scales by the name that the format has for it: "nearest", "4/6", "search" or "eden" (NVFP4), "floor" or
 * "up" (MXFP4). */
TETRAD_API tetrad_status tetrad_quantizer_set_scale(tetrad_quantizer* quantizer, const char* scale);
/* 128 signs drawn by the seed, as `tetrad quantize --signs fresh` draws them. */
TETRAD_API tetrad_status tetrad_quantizer_draw_signs(tetrad_quantizer* quantizer, uint64_t seed);

/* Sizes of a quantized matrix. */
typedef struct tetrad_layout {
  size_t struct_size;
  int64_t rows; /* as a product reads it, blocks along cols: transposed if axis is 0 */
  int64_t cols;
  int64_t
      code_bytes; /* [rows, cols / 2], two codes in a byte, the first in the low half; FP8: [rows, cols] */
  int64_t scale_rows; /* 16x16 blocks store their scale for each of their rows */
  int64_t scale_cols;
  int64_t scale_bytes;
  int32_t scale_dtype; /* TETRAD_E4M3 (NVFP4), TETRAD_E8M0 (MXFP4) or TETRAD_F32 (FP8) */
  int32_t reserved;
} tetrad_layout;

/* For an input of rows x cols, whatever the axis. */
TETRAD_API tetrad_status tetrad_quantized_layout(const tetrad_quantizer* quantizer, int64_t rows,
                                                 int64_t cols, tetrad_layout* layout);

/* Where a quantized matrix lies, row-major, in the context's memory. */
typedef struct tetrad_quantized {
  size_t struct_size;
  void* codes;
  size_t code_bytes;
  void* scales; /* aligned to its elements */
  size_t scale_bytes;
  float* amax; /* one, of the tensor; NVFP4's tensor scale follows from it. NaN: the input was not finite */
} tetrad_quantized;

/* Random bits of stochastic rounding are a function of this and of each element's place; will never change.
 */
typedef struct tetrad_random {
  uint64_t seed;
  uint32_t step;
  uint32_t microbatch;
  uint32_t tensor; /* distinct for each tensor and each of its uses */
  uint32_t reserved;
} tetrad_random;

/* The number by which `tetrad quantize` draws for the tensor of that name, to be tetrad_random.tensor. */
TETRAD_API uint32_t tetrad_tensor_of_name(const char* name);

/* Seed, step and microbatch in the context's memory, read when the work is done: what was recorded (a CUDA
 * graph) then draws anew each time it is replayed. Will never change. */
typedef struct tetrad_random_key {
  uint64_t seed;
  uint32_t step;
  uint32_t microbatch;
} tetrad_random_key;

typedef struct tetrad_quantize_options {
  size_t struct_size;
  tetrad_random random;
  const float* amax; /* in the program's memory: scale by this amax instead of the input's own; or NULL */
  int64_t first_row; /* where the input lies in a larger tensor, as quantized; multiples of 16 along cols */
  int64_t first_col;
  int64_t total_cols;           /* 0: the input has all columns */
  const tetrad_random_key* key; /* replaces seed, step and microbatch of `random`; or NULL */
} tetrad_quantize_options;

/* About the values that were quantized. Asking for it makes a CUDA context wait for the result. */
typedef struct tetrad_quantize_stats {
  size_t struct_size;
  double amax;
  double signal;             /* sum of x^2 */
  double noise;              /* sum of (x - decoded)^2 */
  double max_error;          /* largest |x - decoded| */
  int64_t elements;          /* behind the figures above and below */
  int64_t non_finite;        /* NaN or infinite; if any, the result decodes to NaN */
  int64_t flushed;           /* nonzero values that decode to zero */
  int64_t saturated;         /* clipped values */
  int64_t blocks;            /* with a scale of their own */
  int64_t zero_scale_blocks; /* not all zero, but their scale underflowed to zero */
} tetrad_quantize_stats;

/* `options` and `stats` may be NULL. */
TETRAD_API tetrad_status tetrad_quantize(tetrad_context* context, const tetrad_matrix* x,
                                         const tetrad_quantizer* quantizer,
                                         const tetrad_quantize_options* options, const tetrad_quantized* out,
                                         tetrad_quantize_stats* stats);

/* `out` is [rows, cols] of the layout; after a Hadamard transform it is the transformed matrix. */
TETRAD_API tetrad_status tetrad_dequantize(tetrad_context* context, const tetrad_quantizer* quantizer,
                                           const tetrad_quantized* in, const tetrad_matrix* out);

/* --- Products ------------------------------------------------------------------------------------------- */

/* A matrix [rows, cols] as a product reads it, the reduction dimension along cols: unquantized values, or
 * what tetrad_quantize() made of rows x cols (cols x rows if axis is 0). */
typedef struct tetrad_operand {
  size_t struct_size;
  tetrad_matrix values;              /* data NULL: quantized */
  const tetrad_quantizer* quantizer; /* and the two below */
  const tetrad_quantized* quantized;
  int64_t rows;
  int64_t cols;
} tetrad_operand;

/* out = a b^T: [a.rows, b.rows]. Quantized operands are multiplied as the values that they decode to. */
TETRAD_API tetrad_status tetrad_matmul(tetrad_context* context, const tetrad_operand* a,
                                       const tetrad_operand* b, const tetrad_matrix* out);

/* --- Linear layer --------------------------------------------------------------------------------------- */

/* How the operands of the three products of a linear layer are quantized: fprop y = x W^T, dgrad dx = dy W,
 * wgrad dW = dy^T x. */
typedef struct tetrad_precision tetrad_precision;
enum {
  TETRAD_FPROP_X = 0,
  TETRAD_FPROP_W = 1,
  TETRAD_DGRAD_DY = 2,
  TETRAD_DGRAD_W = 3,
  TETRAD_WGRAD_DY = 4,
  TETRAD_WGRAD_X = 5,
  TETRAD_OPERANDS = 6
};

/* "bf16", "fp8", "mxfp4", "nvfp4" or "tetrad": docs/recipes.md has their tables. */
TETRAD_API tetrad_status tetrad_precision_from_recipe(const char* recipe, tetrad_precision** out);
/* TETRAD_OPERANDS quantizers; NULL: not quantized. The axis of each follows from its place here. */
TETRAD_API tetrad_status tetrad_precision_from_operands(const tetrad_quantizer* const* operands,
                                                        tetrad_precision** out);
TETRAD_API void tetrad_precision_free(tetrad_precision* precision);
/* One line for people, which ends with a zero: as much of it as there is room for. `needed`, unless NULL,
 * gets the bytes that all of it takes. */
TETRAD_API tetrad_status tetrad_precision_describe(const tetrad_precision* precision, char* text, size_t size,
                                                   size_t* needed);

/* What the number of tokens must be a multiple of, for dW; 1: anything. Rows of zeros may be added to x and
 * dy: they change no value of the others. */
TETRAD_API tetrad_status tetrad_precision_token_multiple(const tetrad_precision* precision,
                                                         int64_t* multiple);

/* What a configuration says under `precision`: all keys of docs/recipes.md. */
typedef struct tetrad_recipe tetrad_recipe;
/* `text` is a recipe's name or a map in braces, as JSON has it; `blocks` is how many the model has, of which
 * a recipe may leave some at its ends in BF16. */
TETRAD_API tetrad_status tetrad_recipe_parse(const char* text, int64_t blocks, tetrad_recipe** out);
TETRAD_API void tetrad_recipe_free(tetrad_recipe* recipe);

typedef struct tetrad_layer {
  size_t struct_size;
  const char* name; /* what patterns are matched with */
  int64_t block;
  int64_t out_features; /* 0: a multiple of the size of every transform */
  double progress;      /* the fraction of the training that is over, for a schedule */
} tetrad_layer;
TETRAD_API tetrad_status tetrad_precision_of_layer(const tetrad_recipe* recipe, const tetrad_layer* layer,
                                                   tetrad_precision** out);

/* Random bits of a call follow from this, the operand and each element's place; will never change. */
typedef struct tetrad_linear_key {
  uint64_t seed;
  uint32_t step;
  uint32_t microbatch;
  uint32_t layer; /* distinct for each linear layer of a model */
  uint32_t reserved;
} tetrad_linear_key;

/* Bytes that forward leaves for backward: x as wgrad reads it. 0: backward reads x itself. */
TETRAD_API tetrad_status tetrad_linear_saved_bytes(const tetrad_precision* precision, int64_t tokens,
                                                   int64_t in_features, size_t* bytes);

typedef struct tetrad_linear_forward_args {
  size_t struct_size;
  const tetrad_precision* precision;
  tetrad_linear_key key;
  tetrad_matrix x; /* [tokens, in] */
  tetrad_matrix w; /* [out, in] */
  tetrad_matrix y; /* [tokens, out], written */
  void* saved;     /* tetrad_linear_saved_bytes(), aligned to 16; NULL: nothing is kept */
  size_t saved_bytes;
  const tetrad_random_key* random_key; /* replaces seed, step and microbatch of `key`; or NULL */
} tetrad_linear_forward_args;

/* y = x W^T. */
TETRAD_API tetrad_status tetrad_linear_forward(tetrad_context* context,
                                               const tetrad_linear_forward_args* args);

typedef struct tetrad_linear_backward_args {
  size_t struct_size;
  const tetrad_precision* precision;
  tetrad_linear_key key;
  tetrad_matrix dy;  /* [tokens, out] */
  tetrad_matrix w;   /* as in forward; data NULL: dx is not wanted */
  tetrad_matrix dx;  /* [tokens, in], written; data NULL: not wanted */
  tetrad_matrix dw;  /* [out, in]; data NULL: not wanted */
  tetrad_matrix x;   /* as in forward; may be without data where `saved` is given and not empty */
  const void* saved; /* of forward; NULL: computed from x again, to the same bits */
  size_t saved_bytes;
  int32_t accumulate; /* not 0: dw, in f32, is added to */
  int32_t reserved;
  const tetrad_random_key* random_key; /* as in forward */
} tetrad_linear_backward_args;

/* dx = dy W and dW = dy^T x. */
TETRAD_API tetrad_status tetrad_linear_backward(tetrad_context* context,
                                                const tetrad_linear_backward_args* args);

/* --- Export --------------------------------------------------------------------------------------------- */

/* A model with the names and shapes of Hugging Face's transformers (Llama, Qwen3, Nemotron-H) in the files of
 * other programs, by the writer of `tetrad export`. */
typedef struct tetrad_export tetrad_export;

typedef struct tetrad_export_options {
  size_t struct_size;
  /* What transformers saves beside the weights: config.json, and generation_config.json and the files of a
   * tokenizer where there are such. */
  const char* folder;
  const char* format; /* "hf", "modelopt", "compressed-tensors" or "gguf": docs/commands.md */
  const char* dtype;  /* of weights that are not NVFP4: "bf16", "f16", "f32"; NULL: "bf16". Not for gguf */
  /* Copies the elements of a tensor, row-major, to `out`, and returns 0; anything else ends the export. It is
   * called on the thread of tetrad_export_write(), for one tensor at a time. */
  int32_t (*read)(void* user, const char* tensor, void* out, size_t bytes);
  void* user;
  uint64_t shard_bytes; /* largest file; 0: 5 GB */
  int32_t overwrite;    /* not 0: an earlier export may be replaced */
  /* Servers make one matrix of q, k and v, and of gate and up, with one tensor scale. 0: each has its own,
   * and the codes of training. Not 0: they are quantized together. */
  int32_t joined_scales;
} tetrad_export_options;

/* Texts are copied. */
TETRAD_API tetrad_status tetrad_export_create(const tetrad_export_options* options, tetrad_export** out);
/* NULL is allowed. */
TETRAD_API void tetrad_export_free(tetrad_export* what);
/* Every tensor of the model, by its name there: "model.layers.0.mlp.up_proj.weight". TETRAD_F32 or
 * TETRAD_BF16. */
TETRAD_API tetrad_status tetrad_export_tensor(tetrad_export* what, const char* name, int32_t dtype,
                                              const int64_t* shape, int32_t dimensions);
/* A linear layer that was trained with this precision, by the name of its module; others stay as they are.
 * `input_amax`: the largest |x| that it was given, for modelopt and compressed-tensors; negative: unknown. */
TETRAD_API tetrad_status tetrad_export_layer(tetrad_export* what, const char* name,
                                             const tetrad_precision* precision, float input_amax);
/* A folder, or for gguf a file, which appears whole or not at all. `context` is one of the CPU.
 * TETRAD_FAILURE is that of a disk. */
TETRAD_API tetrad_status tetrad_export_write(tetrad_export* what, tetrad_context* context, const char* out);
/* What people should know of what was written; NULL: there is no more. Valid until the next write. */
TETRAD_API const char* tetrad_export_warning(const tetrad_export* what, size_t index);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-*,readability-identifier-naming) */

#endif
