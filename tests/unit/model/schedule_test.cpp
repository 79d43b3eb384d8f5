// Step lists and their marks against the reference's schedules, and where backward ends.
#include "core/model/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fastllm::model {
namespace {

std::vector<int> buffers(const nlohmann::json& map) {
  std::vector<int> result(map.size());
  for (const auto& [stage, buffer] : map.items()) result[std::stoi(stage)] = buffer;
  return result;
}

// Cases of one pipeline rank without micro-sequences: a data rank's steps are those of one rank.
TEST(Schedule, EqualsTheReference) {
  std::ifstream file(FASTLLM_SOURCE_DIR "/tests/fixtures/schedules/expected.json");
  const nlohmann::json cases = nlohmann::json::parse(file).at("cases");
  int compared = 0;
  for (const auto& c : cases) {
    if (c["ranks"].size() != 1 || c["batch"].contains("micro_sequence_length")) continue;
    SCOPED_TRACE(c["name"].get<std::string>());
    const auto& rank = c["ranks"][0];
    ScheduleOptions options;
    options.stages = int(c["stages"].size());
    options.depth_first = c["batch"].value("depth_first_micro_batches", 1);
    options.breadth_first = c["batch"].value("breadth_first_micro_batches", 1);
    options.weight_buffer = buffers(rank["weight_buffers"]);
    options.gradient_buffer = buffers(rank["grad_buffers"]);
    const std::vector<Step> steps = make_schedule(options);
    std::vector<char> restored(steps.size(),
                               0);  // the reference names the steps that a launch serves
    for (const auto& step : rank["steps"])
      for (int consumer : step.value("restore_launch", std::vector<int>{})) restored[consumer] = 1;
    ASSERT_EQ(steps.size(), rank["steps"].size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto& expected = rank["steps"][i];
      const std::string op =
          (steps[i].phase == Phase::kForward ? "F" : "B") + std::to_string(steps[i].stage);
      EXPECT_EQ(op, expected["op"]) << i;
      EXPECT_EQ(steps[i].micro_batch, expected["mb"]) << i;
      EXPECT_EQ(steps[i].restore_before, bool(restored[i])) << i;
      const std::string reduce = expected.value("reduce", "");
      EXPECT_EQ(steps[i].reduce_after, !reduce.empty()) << i;
      EXPECT_EQ(steps[i].reduce_accumulates, reduce == "accumulate") << i;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

TEST(Schedule, NoBackwardBelowTheLowestTrainableStage) {
  ScheduleOptions options;
  options.stages = 4;
  options.depth_first = 2;
  options.lowest_backward_stage = 2;
  const std::vector<Step> steps = make_schedule(options);
  ASSERT_EQ(steps.size(), 2u * (4 + 2));
  for (const Step& step : steps) EXPECT_TRUE(step.phase == Phase::kForward || step.stage >= 2);
  // Each trainable stage is reduced once, after its last micro-batch.
  EXPECT_TRUE(steps[10].reduce_after && steps[11].reduce_after);
  EXPECT_EQ(std::count_if(steps.begin(), steps.end(), [](const Step& s) { return s.reduce_after; }),
            2);

  options.lowest_backward_stage = 4;  // everything is frozen
  for (const Step& step : make_schedule(options)) {
    EXPECT_EQ(step.phase, Phase::kForward);
    EXPECT_FALSE(step.reduce_after);
  }
}

TEST(Schedule, EvaluationIsForwardAlone) {
  ScheduleOptions options;
  options.stages = 3;
  options.breadth_first = 2;
  options.training = false;
  const std::vector<Step> steps = make_schedule(options);
  ASSERT_EQ(steps.size(), 6u);
  for (const Step& step : steps) EXPECT_EQ(step.phase, Phase::kForward);
}

}  // namespace
}  // namespace fastllm::model
