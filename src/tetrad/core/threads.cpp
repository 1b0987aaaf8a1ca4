#include "tetrad/core/threads.h"

#include <omp.h>

namespace tetrad {
namespace {
int requested_threads = 0;
}

int thread_count() { return requested_threads > 0 ? requested_threads : omp_get_max_threads(); }

void set_thread_count(int count) { requested_threads = count; }

}  // namespace tetrad
