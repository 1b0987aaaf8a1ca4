// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything in numerics/ compiles for the host and, under nvcc, for the device: one definition, many loops.
//
// Floating-point contraction must be off wherever these headers are compiled (-ffp-contract=off, nvcc
// -fmad=false): a fused multiply-add rounds once where numerics are defined to round twice. The
// `tetrad::numerics` build target carries the flags.

#if defined(__CUDACC__)
#define TETRAD_HD __host__ __device__
#else
#define TETRAD_HD
#endif
