// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/threads.h"

#include <omp.h>

namespace tetrad {
namespace {

// Read once, before anybody (OpenBLAS, say) changes OpenMP's setting.
const int default_thread_count = omp_get_max_threads();
int requested_thread_count = 0;

}  // namespace

int thread_count() { return requested_thread_count > 0 ? requested_thread_count : default_thread_count; }

void set_thread_count(int count) { requested_thread_count = count; }

}  // namespace tetrad
