// SPDX-License-Identifier: Apache-2.0
#pragma once
// Normalization form C: one spelling of texts that Unicode says are the same.

#include <string>
#include <string_view>

namespace tetrad {

/// As the `tokenizers` package does it, with the Unicode version that it has. Bytes that are not UTF-8 stay
/// as they are and where they are.
std::string normalize_nfc(std::string_view text);

}  // namespace tetrad
