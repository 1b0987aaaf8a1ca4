// Stand-ins until each operation has its file.
#include "tetrad/backend/cpu/activation.h"
#include "tetrad/backend/cpu/adamw.h"
#include "tetrad/backend/cpu/embedding.h"
#include "tetrad/backend/cpu/loss.h"
#include "tetrad/backend/cpu/norm.h"
#include "tetrad/backend/cpu/rope.h"
#include "tetrad/core/error.h"

namespace tetrad::cpu {
void activation(const ActivationForward& /*op*/) { fail("not implemented"); }
void activation(const ActivationBackward& /*op*/) { fail("not implemented"); }
void add(const Add& /*op*/) { fail("not implemented"); }
void adamw(const AdamWStep& /*op*/) { fail("not implemented"); }
void embedding(const EmbeddingForward& /*op*/) { fail("not implemented"); }
void embedding(const EmbeddingBackward& /*op*/) { fail("not implemented"); }
void cross_entropy(const CrossEntropy& /*op*/) { fail("not implemented"); }
void rms_norm(const RmsNormForward& /*op*/) { fail("not implemented"); }
void rms_norm(const RmsNormBackward& /*op*/) { fail("not implemented"); }
void gated_norm(const GatedNormForward& /*op*/) { fail("not implemented"); }
void gated_norm(const GatedNormBackward& /*op*/) { fail("not implemented"); }
void rope(const Rope& /*op*/) { fail("not implemented"); }
std::vector<double> squared_norms(std::span<const AdamWTensor> /*tensors*/) { fail("not implemented"); }
}  // namespace tetrad::cpu
