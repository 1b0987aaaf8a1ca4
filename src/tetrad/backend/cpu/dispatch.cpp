// SPDX-License-Identifier: Apache-2.0
// Chooses the variant of this backend. This file is compiled for the architecture's baseline, and includes
// nothing that the variants define.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "tetrad/backend/cpu/factory.h"
#include "tetrad/backend/cpu/instruction_sets.h"
#include "tetrad/core/error.h"
#include "tetrad/ops/backend.h"

extern "C" {
tetrad::cpu::Factory tetrad_cpu_native, tetrad_cpu_baseline, tetrad_cpu_avx2, tetrad_cpu_avx512,
    tetrad_cpu_neon;
}

namespace tetrad {
namespace {

/// An instruction set, with or without the BF16 products that a variant can do.
struct Choice {
  const char* name;
  bool usable;  //!< the processor has it
  cpu::Factory* make;
  cpu::ProductKernel kernel;
};

#if defined(TETRAD_CPU_NATIVE)

#if defined(__AVX512BF16__)
constexpr Choice kChoices[] = {{"avx512-bf16", true, tetrad_cpu_native, cpu::ProductKernel::bf16},
                               {"avx512", true, tetrad_cpu_native, cpu::ProductKernel::f32}};
#elif defined(__AVX512F__) && defined(__AVX512BW__)
constexpr Choice kChoices[] = {{"avx512", true, tetrad_cpu_native, cpu::ProductKernel::f32}};
#elif defined(__AVX2__) && defined(__FMA__)
constexpr Choice kChoices[] = {{"avx2", true, tetrad_cpu_native, cpu::ProductKernel::f32}};
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
constexpr Choice kChoices[] = {{"neon-bf16", true, tetrad_cpu_native, cpu::ProductKernel::bf16},
                               {"neon", true, tetrad_cpu_native, cpu::ProductKernel::f32}};
#elif defined(__aarch64__)
constexpr Choice kChoices[] = {{"neon", true, tetrad_cpu_native, cpu::ProductKernel::f32}};
#else
constexpr Choice kChoices[] = {{"baseline", true, tetrad_cpu_native, cpu::ProductKernel::f32}};
#endif

std::span<const Choice> choices() { return kChoices; }

#elif defined(__x86_64__)

std::span<const Choice> choices() {
  static const Choice all[] = {
      {"avx512-bf16", __builtin_cpu_supports("x86-64-v4") != 0 && __builtin_cpu_supports("avx512bf16") != 0,
       tetrad_cpu_avx512, cpu::ProductKernel::bf16},
      {"avx512", __builtin_cpu_supports("x86-64-v4") != 0, tetrad_cpu_avx512, cpu::ProductKernel::f32},
      {"avx2", __builtin_cpu_supports("x86-64-v3") != 0, tetrad_cpu_avx2, cpu::ProductKernel::f32},
      {"baseline", true, tetrad_cpu_baseline, cpu::ProductKernel::f32}};
  return all;
}

#elif defined(__aarch64__)

std::span<const Choice> choices() {
  static const Choice all[] = {
      {"neon-bf16", (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0, tetrad_cpu_neon, cpu::ProductKernel::bf16},
      {"neon", true, tetrad_cpu_neon, cpu::ProductKernel::f32}};
  return all;
}

#else

std::span<const Choice> choices() {
  static const Choice all[] = {{"baseline", true, tetrad_cpu_baseline, cpu::ProductKernel::f32}};
  return all;
}

#endif

const Choice& best() {
  for (const Choice& choice : choices())
    if (choice.usable) return choice;
  throw Error("this processor has none of the instruction sets that this build has kernels for");
}

const Choice& named(const std::string& name) {
  for (const Choice& choice : choices())
    if (choice.usable && choice.name == name) return choice;
  const auto [usable, missing] = cpu_instruction_sets();
  const bool known = std::ranges::find(missing, name) != missing.end();
  throw Error(fmt::format("{} instruction set \"{}\"; valid: {}",
                          known ? "this processor does not have the" : "this build has no kernels for the",
                          name, fmt::join(usable, ", ")));
}

}  // namespace

CpuInstructionSets cpu_instruction_sets() {
  CpuInstructionSets sets;
  for (const Choice& choice : choices())
    (choice.usable ? sets.usable : sets.missing).emplace_back(choice.name);
  return sets;
}

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  const char* forced = std::getenv("TETRAD_CPU");  // NOLINT(concurrency-mt-unsafe): nobody changes it
  const std::string name =
      options.instruction_set.empty() && forced != nullptr ? forced : options.instruction_set;
  const Choice& choice = name.empty() ? best() : named(name);
  return std::unique_ptr<Backend>(choice.make({options, choice.name, choice.kernel}));
}

}  // namespace tetrad
