// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loss curves as a picture for a browser or a document.

#include <string>

#include "tetrad/plot/figure.h"

namespace tetrad {

/// A complete SVG file: loss against tokens and, if there are several runs, the gap to the first below it.
/// It follows the reader's choice of light or dark. `subtitle` is one line of plain text, and may be empty.
/// The same figure gives the same bytes.
std::string draw_svg(const Figure& figure, const std::string& subtitle);

}  // namespace tetrad
