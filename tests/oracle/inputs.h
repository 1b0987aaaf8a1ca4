// SPDX-License-Identifier: Apache-2.0
#pragma once
// Named test inputs for the quantizers: ordinary ones and the ones that break things. All are finite.

#include <string>
#include <string_view>
#include <vector>

namespace tetrad::oracle {

/// Every kind that make_input() knows.
const std::vector<std::string>& input_kinds();

/// Row-major [rows, cols]; the same values every time for the same kind and shape.
std::vector<float> make_input(std::string_view kind, long rows, long cols);

/// The nearest BF16 values, except that nothing finite becomes infinite: that would be another test.
std::vector<float> rounded_to_bf16(std::vector<float> x);

}  // namespace tetrad::oracle
