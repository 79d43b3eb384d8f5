// Step lists and their marks against the reference's schedules, and where backward ends.
#include "core/model/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace fastllm::model {
namespace {

// A buffer by stage; 0 where the stage is not on this rank.
std::vector<int> buffers(const nlohmann::json& map, size_t stages) {
  std::vector<int> result(stages);
  for (const auto& [stage, buffer] : map.items()) result[std::stoul(stage)] = buffer;
  return result;
}

std::vector<Step> schedule_of(const nlohmann::json& c, size_t rank) {
  ScheduleOptions options;
  options.stages = int(c["stages"].size());
  options.depth_first = c["batch"].value("depth_first_micro_batches", 1);
  options.breadth_first = c["batch"].value("breadth_first_micro_batches", 1);
  options.pipeline = int(c["ranks"].size());
  options.pipeline_rank = int(rank);
  options.weight_buffer = buffers(c["ranks"][rank]["weight_buffers"], c["stages"].size());
  options.gradient_buffer = buffers(c["ranks"][rank]["grad_buffers"], c["stages"].size());
  return make_schedule(options);
}

// By global index of a step whose result goes to another rank: that of the step which begins the
// receive. The receives of a step, by global index of those that they serve, are checked on the way.
std::map<int, int> launches(const std::vector<std::vector<Step>>& ranks) {
  std::map<int, int> launch_of_consumer, result;
  for (const auto& steps : ranks)
    for (const Step& step : steps)
      for (int consumer : step.receives)
        EXPECT_TRUE(launch_of_consumer.emplace(steps[size_t(consumer)].index, step.index).second);
  // A micro-batch goes through the steps in the order of their global index.
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Step& step : ranks[rank]) {
      if (step.to < 0) continue;
      int consumer = -1;
      for (const Step& other : ranks[size_t(step.to)])
        if (other.micro_batch == step.micro_batch && other.index > step.index &&
            (consumer < 0 || other.index < consumer))
          consumer = other.index;
      EXPECT_TRUE(launch_of_consumer.contains(consumer));
      result[step.index] = launch_of_consumer[consumer];
    }
  }
  EXPECT_EQ(result.size(), launch_of_consumer.size());
  return result;
}

TEST(Schedule, EqualsTheReference) {
  std::ifstream file(FASTLLM_SOURCE_DIR "/tests/fixtures/schedules/expected.json");
  const nlohmann::json cases = nlohmann::json::parse(file).at("cases");
  int compared = 0;
  for (const auto& c : cases) {
    if (c["batch"].contains("micro_sequence_length")) continue;
    SCOPED_TRACE(c["name"].get<std::string>());
    std::vector<std::vector<Step>> ranks;
    for (size_t rank = 0; rank < c["ranks"].size(); ++rank) ranks.push_back(schedule_of(c, rank));
    const std::map<int, int> launch_of = launches(ranks);
    for (size_t r = 0; r < ranks.size(); ++r) {
      SCOPED_TRACE(r);
      const auto& golden = c["ranks"][r]["steps"];
      const std::vector<Step>& steps = ranks[r];
      std::set<int> restored;  // the reference names the steps that a launch serves
      for (const auto& step : golden)
        for (int consumer : step.value("restore_launch", std::vector<int>{}))
          restored.insert(consumer);
      ASSERT_EQ(steps.size(), golden.size());
      for (size_t i = 0; i < steps.size(); ++i) {
        const auto& expected = golden[i];
        const Step& step = steps[i];
        SCOPED_TRACE(i);
        EXPECT_EQ(step.index, expected["i"]);
        EXPECT_EQ((step.phase == Phase::kForward ? "F" : "B") + std::to_string(step.stage),
                  expected["op"]);
        EXPECT_EQ(step.micro_batch, expected["mb"]);
        EXPECT_EQ(double(step.begin), expected["time"][0].get<double>());
        EXPECT_EQ(step.restore_before, restored.contains(step.index));
        const std::string reduce = expected.value("reduce", "");
        EXPECT_EQ(step.reduce_after, !reduce.empty());
        EXPECT_EQ(step.reduce_accumulates, reduce == "accumulate");
        EXPECT_EQ(launch_of.contains(step.index) ? launch_of.at(step.index) : -1,
                  expected.value("send_to", -1));
        std::vector<int> receives;
        for (int consumer : step.receives) receives.push_back(steps[size_t(consumer)].index);
        EXPECT_EQ(receives, expected.value("recv_launch", std::vector<int>{}));
      }
    }
    ++compared;
  }
  EXPECT_EQ(compared, 9);
}

// Messages between two ranks keep their order, so they must be received in the order of the sends.
TEST(Schedule, RanksReceiveInTheOrderOfTheSends) {
  for (const bool training : {true, false})
    for (int pipeline = 2; pipeline <= 5; ++pipeline)
      for (int stages = pipeline; stages <= 3 * pipeline; ++stages)
        for (int breadth = 1; breadth <= 6; ++breadth)
          for (int lowest : {0, 1, stages}) {
            std::vector<std::vector<Step>> ranks;
            for (int rank = 0; rank < pipeline; ++rank)
              ranks.push_back(make_schedule({.stages = stages,
                                             .breadth_first = breadth,
                                             .training = training,
                                             .pipeline = pipeline,
                                             .pipeline_rank = rank,
                                             .weight_buffer = {},
                                             .gradient_buffer = {},
                                             .lowest_backward_stage = lowest}));
            const auto key = [&](const Step& step) {
              return std::tuple(
                  step.phase == Phase::kForward ? step.stage : 2 * stages - 1 - step.stage,
                  step.micro_batch);
            };
            for (int from = 0; from < pipeline; ++from)
              for (int to = 0; to < pipeline; ++to) {
                std::vector<std::tuple<int, int>> sent, received;
                for (const Step& step : ranks[size_t(from)]) {
                  auto [position, micro_batch] = key(step);
                  if (step.to == to) sent.emplace_back(position + 1, micro_batch);
                }
                for (const Step& step : ranks[size_t(to)])
                  for (int consumer : step.receives)
                    if (ranks[size_t(to)][size_t(consumer)].from == from)
                      received.push_back(key(ranks[size_t(to)][size_t(consumer)]));
                ASSERT_EQ(sent, received) << pipeline << " " << stages << " " << breadth;
              }
          }
}

// Each rank is idle while the first micro-batch comes to it, and while the last one leaves.
TEST(Schedule, BubbleOfPlainPipelinesIsTheKnownOne) {
  for (int ranks : {1, 2, 4, 8})
    for (int micro_batches : {1, 4, 16}) {
      ScheduleOptions options;
      options.stages = options.pipeline = ranks;
      options.breadth_first = micro_batches;
      EXPECT_NEAR(bubble_share(options), (ranks - 1.0) / (micro_batches + ranks - 1), 1e-12);
    }
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
