#include "core/train/metrics/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace fastllm::train {
namespace {

// The line of a real run of the reference: 8 GPUs, SmolLM2-135M, iteration 100 of 100.
Metrics real_run() {
  Metrics m;
  m.phase = "training";
  m.iteration = m.train_iters = 100;
  m.batch_size = 480;
  m.sequence_length = 1024;
  m.world_size = 8;
  m.step_time_ms = 191.74;
  double tokens = 480.0 * 1024;
  m.model_flops = 913047552 * tokens;
  m.hardware_flops = 930742272 * tokens;
  m.memory = {1091.40, 40576.67, 47002.00};
  m.training = Metrics::Training{6e-4, 1, 0.3063, 0, 0, 231.56, 0, 1};
  m.losses = {{"language_model_loss", 6.17838}};
  return m;
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at; (at = line.find(" | ", begin)) != std::string::npos; begin = at + 3) {
    parts.push_back(line.substr(begin, at - begin));
  }
  parts.push_back(line.substr(begin));
  return parts;
}

TEST(Metrics, LineEqualsTheReferencesField) {
  setenv("TZ", "UTC", 1);
  tzset();
  std::time_t now = 1742594244;  // 2025-03-21 21:57:24 UTC
  std::vector<std::string> expected{
      "PhaseType.training @ iteration    100/   100", "consumed samples:       48,000",
      "consumed tokens:       49,152,000", "batch size: 480", "step time: 191.74 ms",
      "throughput: 292.57 tflop/s (model)", "298.24 tflop/s (hardware)",
      // The log's own 320432.24 was computed from the unrounded step time.
      "320434.00 tokens/s/gpu", "Memory allocated 1,091.40 MiB", "max allocated 40,576.67 MiB",
      "reserved 1,091.40 MiB", "max reserved 40,576.67 MiB", "global max reserved 47,002.00 MiB",
      "learning rate: 6.000e-04", "loss scale:     1", "grad norm: 0.3063",
      "skipped iterations:   0", "nan iterations:   0", "average step time 231.56 ms",
      "remaining 0:00:00 ", "completion 2025-03-21 21:57:24 (100.00 %)",
      "language model loss: 6.17838", "run: 1"};
  auto found = fields(log_line(real_run(), now));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i == 7) {
      EXPECT_NEAR(std::atof(found[i].c_str()), 320434, 1) << found[i];
      continue;
    }
    EXPECT_EQ(found[i], expected[i]);
  }
}

TEST(Metrics, ValidationLinesEndAfterTheLosses) {
  Metrics m = real_run();
  m.phase = "validation";
  m.training.reset();
  auto found = fields(log_line(m, 0));
  EXPECT_EQ(found.front(), "PhaseType.validation @ iteration    100/   100");
  EXPECT_EQ(found.back(), "language model loss: 6.17838");
  EXPECT_EQ(found.size(), 14u);
}

TEST(Metrics, MissingValuesPrintAsNanAndTravelAsNull) {
  Metrics m = real_run();
  m.memory = {Metrics::kMissing, Metrics::kMissing, Metrics::kMissing};
  m.losses[0].second = Metrics::kMissing;
  m.model_flops = 0;
  m.training->grad_norm = m.training->learning_rate = Metrics::kMissing;
  m.training->run.reset();
  std::string line = log_line(m, 0);
  for (const char* text :
       {"Memory allocated nan MiB", "throughput: nan tflop/s", "language model loss: nan",
        "grad norm: nan", "learning rate: nan", "run: None"}) {
    EXPECT_NE(line.find(text), std::string::npos) << text << " in " << line;
  }
  config::Node node = to_node(m, 0);
  EXPECT_TRUE(node.find("language_model_loss")->is_null());
  EXPECT_TRUE(node.find("allocated")->is_null());
  EXPECT_FALSE(node.has("grad_norm"));
}

TEST(Metrics, RemainingTimeFollowsTheAverage) {
  Metrics m = real_run();
  m.iteration = 40;
  m.training->step_time_average_ms = 1000;
  EXPECT_NE(log_line(m, 0).find("remaining 0:01:00  | completion "), std::string::npos)
      << log_line(m, 0);
  EXPECT_NE(log_line(m, 0).find("(40.00 %)"), std::string::npos);
}

TEST(MemoryProbe, SeesThisProcess) {
  MemoryProbe probe;
  MemoryUse use = probe.read();
  EXPECT_GT(use.now, 1);
  EXPECT_GE(use.global_peak, use.now * 0.5);
  EXPECT_GE(use.global_peak, use.peak);
}

}  // namespace
}  // namespace fastllm::train
