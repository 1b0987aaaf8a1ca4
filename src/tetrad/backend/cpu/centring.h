// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tetrad/core/threads.h"
#include "tetrad/ops/centring.h"

namespace tetrad::cpu {

void column_sums(Threads& threads, const ColumnSums& op);
void centre(Threads& threads, const Centre& op);
void add_row(Threads& threads, const AddRow& op);
void add_outer(Threads& threads, const AddOuter& op);

}  // namespace tetrad::cpu
