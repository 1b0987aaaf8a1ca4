// SPDX-License-Identifier: Apache-2.0
// Versions and contexts.

#include <string>

#include "tetrad/c/boundary.h"

// The header says its version in numbers, so that it needs no generated file; CMake's is the project's.
// NOLINTNEXTLINE(misc-redundant-expression): the numbers are equal, that is the point
static_assert(TETRAD_VERSION_MAJOR == TETRAD_PROJECT_MAJOR && TETRAD_VERSION_MINOR == TETRAD_PROJECT_MINOR &&
              TETRAD_VERSION_PATCH == TETRAD_PROJECT_PATCH);

#define TETRAD_TEXT_OF(number) #number
#define TETRAD_DOTTED(major, minor, patch) \
  TETRAD_TEXT_OF(major) "." TETRAD_TEXT_OF(minor) "." TETRAD_TEXT_OF(patch)

using namespace tetrad;  // NOLINT(google-build-using-namespace): everything here is ours

const char* tetrad_version(void) {
  return TETRAD_DOTTED(TETRAD_VERSION_MAJOR, TETRAD_VERSION_MINOR, TETRAD_VERSION_PATCH);
}

int32_t tetrad_abi_version(void) { return TETRAD_ABI_VERSION; }

tetrad_status tetrad_cpu_context(const tetrad_cpu_options* options, tetrad_context** out) {
  return c::guarded([&] {
    tetrad_context*& context = c::required(out, "out");
    CpuOptions chosen;
    if (options != nullptr) {
      const tetrad_cpu_options known = c::read_struct(options, "options");
      TETRAD_CHECK(known.threads >= 0, "options: {} threads", known.threads);
      chosen.threads = known.threads;
      if (known.instruction_set != nullptr) chosen.instruction_set = known.instruction_set;
    }
    auto made = std::make_unique<tetrad_context>();
    made->backend = make_cpu_backend(chosen);
    context = made.release();
  });
}

tetrad_status tetrad_cuda_context(const tetrad_cuda_options* options, tetrad_context** out) {
  return c::guarded([&] {
    tetrad_context*& context = c::required(out, "out");
    CudaOptions chosen;
    if (options != nullptr) {
      const tetrad_cuda_options known = c::read_struct(options, "options");
      chosen.device = known.device;
      chosen.stream = known.stream;
    }
    auto made = std::make_unique<tetrad_context>();
    made->backend = make_cuda_backend(chosen);
    made->on_device = true;
    context = made.release();
  });
}

void tetrad_context_free(tetrad_context* context) {
  if (context == nullptr) return;
  c::guarded([&] {
    const std::unique_ptr<tetrad_context> owned(context);
    owned->backend->synchronize();
  });
}

tetrad_status tetrad_synchronize(tetrad_context* context) {
  return c::guarded([&] { c::required(context, "context").backend->synchronize(); });
}
