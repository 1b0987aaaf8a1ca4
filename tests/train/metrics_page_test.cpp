// SPDX-License-Identifier: Apache-2.0
// What Prometheus is given, read by a strict reader of the text format 0.0.4.

#include "tetrad/train/metrics_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "support/exposition.h"

namespace tetrad::testing {
namespace {

StepMetrics step(std::int64_t number, double loss) {
  StepMetrics metrics;
  metrics.step = number;
  metrics.tokens = number * 1000;
  metrics.loss = loss;
  metrics.lr = 1e-5;
  metrics.memory_bytes = 3'000'000'000;
  metrics.phase = 1;
  metrics.forward = "bf16";
  metrics.backward = "nvfp4";
  return metrics;
}

MetricsPage page() { return MetricsPage({"tiny", "nvfp4", "cpu", "abc", 12}); }

TEST(MetricsPage, SaysWhatIsKnownAndNothingElse) {
  MetricsPage metrics({"a \"quoted\\\nname", "nvfp4", "cpu", "abc", 12});
  const Exposition before = parse_exposition(metrics.text());
  EXPECT_EQ(before.value("tetrad_train_planned_steps"), 12);
  EXPECT_EQ(before.value("tetrad_train_steps_skipped_total"), 0);
  EXPECT_EQ(before.labels("tetrad_train_info").at("model"), "a \"quoted\\\nname");
  EXPECT_FALSE(before.has("tetrad_train_loss"));
  EXPECT_FALSE(before.has("tetrad_train_eval_loss"));
  EXPECT_FALSE(before.has("tetrad_train_checkpoint_step"));
}

TEST(MetricsPage, HasTheFiguresOfTheLastStep) {
  MetricsPage metrics = page();
  metrics.add(step(5, 2.5));
  StepMetrics last = step(6, std::numeric_limits<double>::quiet_NaN());
  last.grad_norm = std::numeric_limits<double>::infinity();
  last.tokens_per_s = 1234.5;
  last.tflops = 0.25;
  last.seconds = 0.5;
  last.joules = 7;
  last.device_busy = 0.75;
  last.skipped = true;
  metrics.add(last);
  metrics.add(EvalMetrics{6, 6000, "b", 3.25, std::nullopt, std::nullopt, 3.125});
  metrics.add(EvalMetrics{6, 6000, "a\\\"\n", 1.5, std::nullopt, std::nullopt});
  metrics.add_checkpoint(6, 0.125, 4096);
  metrics.add(HealthEvent{6, "what", "where", "skip"});
  const Exposition text = parse_exposition(metrics.text());
  for (const auto& [name, value] : std::map<std::string, double>{{"step", 6},
                                                                 {"tokens_total", 6000},
                                                                 {"learning_rate", 1e-5},
                                                                 {"tokens_per_second", 1234.5},
                                                                 {"tflops", 0.25},
                                                                 {"step_seconds", 0.5},
                                                                 {"memory_bytes", 3e9},
                                                                 {"steps_skipped_total", 1},
                                                                 {"joules_total", 7},
                                                                 {"device_busy", 0.75},
                                                                 {"checkpoint_step", 6},
                                                                 {"checkpoint_bytes", 4096},
                                                                 {"checkpoint_seconds", 0.125}})
    EXPECT_EQ(text.value("tetrad_train_" + name), value) << name;
  EXPECT_TRUE(std::isnan(text.value("tetrad_train_loss")));
  EXPECT_TRUE(std::isinf(text.value("tetrad_train_grad_norm")));
  EXPECT_EQ(text.value("tetrad_train_eval_loss", {{"source", "b"}}), 3.25);
  EXPECT_EQ(text.value("tetrad_train_eval_bf16_loss", {{"source", "b"}}), 3.125);
  EXPECT_EQ(text.value("tetrad_train_eval_loss", {{"source", "a\\\"\n"}}), 1.5);
  EXPECT_EQ(text.value("tetrad_train_health_events_total", {{"action", "skip"}}), 1);
  EXPECT_EQ(text.labels("tetrad_train_info"), (Exposition::Labels{{"model", "tiny"},
                                                                  {"recipe", "nvfp4"},
                                                                  {"backend", "cpu"},
                                                                  {"build", "abc"},
                                                                  {"phase", "1"},
                                                                  {"forward", "bf16"},
                                                                  {"backward", "nvfp4"}}));
}

TEST(MetricsPage, CountersNeverGoBack) {
  MetricsPage metrics = page();
  metrics.add(step(50, 1));  // resumed at 49
  EXPECT_EQ(parse_exposition(metrics.text()).value("tetrad_train_tokens_total"), 50'000);
  metrics.add(step(51, 1));
  metrics.add(step(41, 1));  // rolled back to 40
  EXPECT_EQ(parse_exposition(metrics.text()).value("tetrad_train_tokens_total"), 52'000);
  EXPECT_EQ(parse_exposition(metrics.text()).value("tetrad_train_step"), 41);
}

TEST(MetricsPage, IsReadWhileItIsWritten) {
  MetricsPage metrics = page();
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) parse_exposition(metrics.text());
  });
  for (int i = 1; i <= 200; ++i) {
    metrics.add(step(i, 1));
    metrics.add(EvalMetrics{i, 1, std::to_string(i % 7), 1, std::nullopt, std::nullopt});
  }
  done = true;
  reader.join();
  EXPECT_EQ(parse_exposition(metrics.text()).value("tetrad_train_step"), 200);
}

TEST(Exposition, IsReadStrictly) {
  const std::string good = "# HELP a b\n# TYPE a gauge\n";
  EXPECT_EQ(parse_exposition(good + "a 1\n").value("a"), 1);
  for (const std::string& text : {std::string("a 1\n"),
                                  good + "a 1",
                                  good + "a\n",
                                  good + "a  1\n",
                                  good + "a 1 \n",
                                  good + "a x\n",
                                  good + "b 1\n",
                                  good + "a 1\na 2\n",
                                  good + "a{} 1\n",
                                  good + "a{b=\"c} 1\n",
                                  good + "a{b=\"\\q\"} 1\n",
                                  good + "a{b=\"\"c=\"\"} 1\n",
                                  good + "a{b=\"1\",b=\"2\"} 1\n",
                                  good + "a{1=\"\"} 1\n",
                                  good + "\na 1\n",
                                  good,
                                  good + "a 1\n# HELP a b\n# TYPE a gauge\na{b=\"\"} 1\n",
                                  std::string("# TYPE a gauge\n# HELP a b\na 1\n"),
                                  std::string("# HELP a b\n# TYPE a figure\na 1\n"),
                                  std::string("# HELP a b\n# TYPE a counter\na 1\n"),
                                  std::string("# HELP a b\\c\n# TYPE a gauge\na 1\n")})
    EXPECT_THROW(parse_exposition(text), std::runtime_error) << text;
}

}  // namespace
}  // namespace tetrad::testing
