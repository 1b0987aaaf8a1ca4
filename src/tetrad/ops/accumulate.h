// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tetrad {

/// Whether a result is added to what is there, or written over it.
enum class Accumulate : bool { no, yes };

}  // namespace tetrad
