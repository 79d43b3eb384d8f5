#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/base/tensor.hpp"
#include "core/checkpoint/retention.hpp"
#include "core/plan/disk.hpp"
#include "core/plan/hardware.hpp"
#include "core/plan/memory.hpp"
#include "core/plan/schedule.hpp"
#include "tests/support/gpt_description.hpp"

namespace fastllm::plan {
namespace {

using distributed::GroupKind;
using distributed::World;

TEST(Hardware, QuantitiesHaveUnits) {
  EXPECT_EQ(parse_quantity("400T"), 400e12);
  EXPECT_EQ(parse_quantity("2.5e9"), 2.5e9);
  EXPECT_EQ(parse_quantity("80Gi"), 80 * 0x1p30);
  EXPECT_EQ(parse_quantity("1k"), 1000);
  for (const char* wrong : {"", "T", "-1", "0", "4X", "1 T", "inf", "nan", "1TT"})
    EXPECT_EQ(parse_quantity(wrong), std::nullopt) << wrong;
}

TEST(Hardware, ABandwidthIsThatOfTheGroupOrOfWhereItsRanksAre) {
  const World world{.tensor = 2, .pipeline = 2, .data = 4, .local_world_size = 4};
  EXPECT_FALSE(spans_computers(world, GroupKind::kTensor));
  EXPECT_TRUE(spans_computers(world, GroupKind::kData));
  EXPECT_TRUE(spans_computers(world, GroupKind::kPipeline));
  EXPECT_FALSE(spans_computers({.data = 1}, GroupKind::kData));
  Hardware hardware;
  hardware.intra = 10;
  hardware.inter = 1;
  hardware.group["pipeline"] = 5;
  EXPECT_EQ(hardware.bandwidth(world, GroupKind::kTensor), 10);
  EXPECT_EQ(hardware.bandwidth(world, GroupKind::kData), 1);
  EXPECT_EQ(hardware.bandwidth(world, GroupKind::kPipeline), 5);
}

TEST(Ranks, OfAPipelineRankAreOneKind) {
  const World world{.tensor = 2, .pipeline = 2, .data = 2};
  const std::vector<RankKind> kinds = rank_kinds(world);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_THAT(kinds[0].ranks, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(kinds[1].ranks, testing::ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(kinds[1].first, 4);
}

model::ScheduleOptions options_of(int stages, int pipeline, int breadth, int rank = 0) {
  model::ScheduleOptions options;
  options.stages = stages;
  options.breadth_first = breadth;
  options.pipeline = pipeline;
  options.pipeline_rank = rank;
  return options;
}

std::vector<std::vector<model::Step>> schedules(int stages, int pipeline, int breadth) {
  std::vector<std::vector<model::Step>> result;
  for (int rank = 0; rank < pipeline; ++rank)
    result.push_back(model::make_schedule(options_of(stages, pipeline, breadth, rank)));
  return result;
}

TEST(Duration, OfEqualStepsIsThatOfTheBubble) {
  for (const auto& [stages, pipeline, breadth] :
       {std::array{4, 2, 4}, {4, 4, 8}, {8, 2, 2}, {3, 3, 1}, {5, 1, 3}}) {
    const double steps = 2.0 * stages * breadth;
    const std::vector<StageTime> times(size_t(stages), StageTime{1, 1, 0, 0});
    const double took = duration(schedules(stages, pipeline, breadth), times);
    EXPECT_NEAR(1 - steps / (took * pipeline),
                model::bubble_share(options_of(stages, pipeline, breadth)), 1e-12);
  }
}

TEST(Duration, WaitsForMessages) {
  const std::vector<StageTime> times(2, StageTime{2, 3, 1, 1});
  EXPECT_EQ(duration(schedules(2, 2, 1), times), 2 + 1 + 2 + 3 + 1 + 3);
  EXPECT_EQ(duration(schedules(2, 1, 1), times), 2 + 2 + 3 + 3);  // nothing is sent
}

// By doing it: what is there after every save and deletion.
TEST(Saves, AreCountedAsTheyAreKept) {
  for (const int64_t iterations : {1, 7, 20, 61})
    for (const int64_t interval : {1, 3, 10})
      for (const int64_t offset : {0, 1})
        for (const std::optional<int64_t> keep : {std::optional<int64_t>{}, {1}, {3}})
          for (const std::optional<int64_t> every : {std::optional<int64_t>{}, {1}, {2}, {4}}) {
            train::SaveSettings save;
            save.when = Interval(interval, offset);
            save.keep = keep;
            save.keep_every = every;
            std::vector<int64_t> there;
            size_t most = 0;
            for (int64_t i = 1; i <= iterations; ++i) {
              if (!save.when.enabled(i) && i != iterations) continue;
              there.push_back(i);
              most = std::max(most, there.size());
              for (int64_t gone : checkpoint::to_delete({save.when, keep, every}, there))
                std::erase(there, gone);
            }
            const Saves saves = saves_of(save, iterations, 100);
            SCOPED_TRACE(testing::Message()
                         << iterations << " by " << interval << " from " << offset << " keep "
                         << keep.value_or(0) << " every " << every.value_or(0));
            EXPECT_EQ(saves.kept, int64_t(there.size()));
            EXPECT_EQ(saves.most, int64_t(most));
          }
}

TEST(Saves, ByTimeAreAsManyAsComeToBe) {
  train::SaveSettings save;
  save.when.seconds = 60;
  EXPECT_EQ(saves_of(save, 10, 1).most, std::nullopt);
  save.keep = 2;
  EXPECT_EQ(saves_of(save, 10, 1).most, 3);
  EXPECT_EQ(saves_of({}, 10, 1).most, 0);
}

TEST(Memory, PartsAddUpToWhatARunPrints) {
  for (const auto& frozen : std::vector<std::string>{"", "mlp", "embeddings", "attention"})
    for (int zero : {1, 2, 3})
      for (const World& world :
           {World{}, World{.tensor = 2, .data = 2}, World{.tensor = 4, .pipeline = 3, .data = 8}}) {
        test::GptShape shape;
        shape.heads = shape.head_groups = 8;
        if (!frozen.empty()) shape.scales[frozen] = {0};
        const model::Description description = test::gpt_description(shape);
        const shard::Layout layout(description, world, {});
        shard::StoreOptions options;
        options.zero_stage = zero;
        options.training = kBfloat16;
        for (const RankKind& kind : rank_kinds(world)) {
          const StateMemory memory = state_memory(layout, kind.first, options);
          EXPECT_EQ(memory.weight_buffers.bytes(), memory.table.weight_buffer_bytes);
          EXPECT_EQ(memory.gradient_buffers.bytes(), memory.table.gradient_buffer_bytes);
          EXPECT_EQ(memory.gradient_buffers.frozen, 0);
          int64_t shards = 0;
          for (const NamedShard& shard : memory.shards) {
            shards += shard.bytes.bytes();
            if (shard.state != "weights" || frozen.empty()) {
              EXPECT_EQ(shard.bytes.frozen, 0);
            }
          }
          EXPECT_EQ(shards, memory.table.shard_bytes);
        }
      }
}

}  // namespace
}  // namespace fastllm::plan
