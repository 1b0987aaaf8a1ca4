// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tetrad {

/// Bytes that a new process could have without swapping: what the kernel calls available, or what the limit
/// of this process's control group leaves, if that is less. Nothing where the kernel does not say. `root` is
/// /, but for tests.
std::optional<std::int64_t> available_memory(const std::filesystem::path& root = "/");

}  // namespace tetrad
