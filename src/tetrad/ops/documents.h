// SPDX-License-Identifier: Apache-2.0
#pragma once
// Documents packed into sequences, and the mask that keeps them apart.
//
// `document_starts` of an operation has, for each of its tokens, the index in the token's sequence at which
// the token's document begins, so that token t sees tokens document_starts[t] … t, and its position is
// t - document_starts[t]. Null: every sequence is one document.

#include <cstdint>
#include <span>

namespace tetrad {

/// Throws Error unless every sequence begins with a document, and every other token either goes on with the
/// document of the one before it or begins one. For starts in the program's memory: nobody looks at those on
/// a device again.
void check_document_starts(std::span<const std::int32_t> starts, std::int64_t sequence);

}  // namespace tetrad
