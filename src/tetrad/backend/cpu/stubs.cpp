// Stand-ins until each operation has its file.
#include "tetrad/backend/cpu/attention.h"
#include "tetrad/backend/cpu/mamba2.h"
#include "tetrad/core/error.h"

namespace tetrad::cpu {
void attention(const AttentionForward& /*op*/) { fail("not implemented"); }
void attention(const AttentionBackward& /*op*/) { fail("not implemented"); }
void attention(const AttentionDecode& /*op*/) { fail("not implemented"); }
void causal_conv(const CausalConvForward& /*op*/) { fail("not implemented"); }
void causal_conv(const CausalConvBackward& /*op*/) { fail("not implemented"); }
void scan(const ScanForward& /*op*/) { fail("not implemented"); }
void scan(const ScanBackward& /*op*/) { fail("not implemented"); }
void mamba2_step(const Mamba2Step& /*op*/) { fail("not implemented"); }
}  // namespace tetrad::cpu
