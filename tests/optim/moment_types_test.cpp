// SPDX-License-Identifier: Apache-2.0
// Which moments are stored how, and that what is predicted of them is what they take.

#include <gtest/gtest.h>

#include "support/cpu.h"
#include "tetrad/model/decoder.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/presets.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad::testing::moment_types_test {
namespace {

TEST(MomentTypes, TakeWhatIsPredicted) {
  for (const char* preset : {"quickstart", "quickstart-hybrid"})
    for (const char* moments : {"f32", "bf16"}) {
      const ModelConfig model = *find_preset(preset);
      const OptimConfig config{.moments = moments};
      Decoder decoder(cpu_backend(), model, 1, 16, DType::bf16);
      AdamWOptimizer optimizer(cpu_backend(), decoder.parameters(), config);
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < decoder.parameters().size(); ++i) {
        const Parameter& parameter = *decoder.parameters()[i];
        const AdamWOptimizer::Moments& own = optimizer.moments(i);
        EXPECT_EQ(own.first.dtype(), parameter.is_linear ? moment_storage(config) : DType::f32);
        EXPECT_EQ(own.second.dtype(), own.first.dtype());
        bytes += own.first.bytes().size() + own.second.bytes().size();
      }
      EXPECT_EQ(static_cast<std::int64_t>(bytes),
                moment_bytes(parameter_sizes(model), moment_storage(config)))
          << preset << " " << moments;
    }
}

}  // namespace
}  // namespace tetrad::testing::moment_types_test
