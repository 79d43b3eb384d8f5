// What a step with something wrong is found out about: where it began, and what that may cost.
#include "core/train/divergence.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/distributed/exchange.hpp"
#include "tests/unit/distributed/memory_network.hpp"
#include "tests/unit/train/toy_step.hpp"

namespace fastllm::train {
namespace {

using ::testing::HasSubstr;

TEST(Divergence, ComparesWithTheMeanOfRecentSteps) {
  DivergenceSettings settings;
  settings.loss_factor = 2;
  Divergence divergence(settings, "loss");
  for (int i = 0; i < 9; ++i) divergence.went_well({{"loss", 1.}});
  EXPECT_EQ(divergence.examine({{"loss", 100.}}), "");  // too few to tell
  divergence.went_well({{"loss", 1.}});
  EXPECT_EQ(divergence.examine({{"loss", 1.9}}), "");
  EXPECT_THAT(divergence.examine({{"loss", 2.1}}),
              HasSubstr("loss is 2.1, more than training.divergence.loss_factor (2) times its mean "
                        "over the last 10 steps (1)"));
}

// An auxiliary loss is as large as it likes, but it is a number.
TEST(Divergence, BoundsTheMainLossAloneAndWantsNumbersOfAll) {
  DivergenceSettings settings;
  settings.loss_threshold = 3;
  settings.loss_factor = 2;
  Divergence divergence(settings, "loss");
  for (int i = 0; i < 10; ++i) divergence.went_well({{"loss", 1.}, {"aux", 900.}});
  EXPECT_EQ(divergence.examine({{"aux", 5000.}, {"loss", 1.5}}), "");
  EXPECT_THAT(divergence.examine({{"aux", 0.}, {"loss", 2.5}}), HasSubstr("loss_factor"));
  EXPECT_EQ(divergence.examine({{"aux", 0.}, {"loss", 3.5}}),
            "loss is 3.5, above training.divergence.loss_threshold (3)");
  EXPECT_EQ(divergence.examine({{"aux", -INFINITY}, {"loss", 1.}}), "aux is -inf");
}

TEST(FindNonFinite, NamesTheOutputByItsLayerAndItsNameWhateverDotsTheyHold) {
  test::ToyOptions options;
  options.hidden = "hidden.states";
  test::ToyStep rig(options);
  rig.model.poison = {3, false, 1, 1, 1};
  EXPECT_THAT(find_non_finite(rig.workspace, rig.input).text,
              HasSubstr("The first that is not finite: output hidden.states of layer block_1 (1 of "
                        "30 values, the first nan at [0, 1]) in forward of micro-batch 1."));
}

// Logits of a step are the largest tensor by far: where they are made for the search alone, a run
// that fits its memory would die of looking.
TEST(FindNonFinite, AsksForNoOutputThatTheStepDoesNotMake) {
  test::ToyStep rig;
  rig.model.poison = {2, false, 1, 1, 0};
  find_non_finite(rig.workspace, rig.input);
  EXPECT_GT(rig.model.counts.back().forward, 0);
  EXPECT_FALSE(rig.model.logits_made);
}

// Each rank looks at its own micro-batches; one that finds nothing must not blame the hardware.
TEST(FindNonFinite, ARankWithoutItPointsToTheOthers) {
  distributed::testing::MemoryNetwork network;
  Origin told[2];
  distributed::testing::run_ranks(2, [&](int rank) {
    const auto world = distributed::make_exchange(
        group_of({.data = 2}, distributed::GroupKind::kWorld, rank), network.of(rank));
    Settings settings = test::toy_settings();
    settings.distributed.world_size = settings.distributed.data_parallel = 2;
    settings.distributed.rank = rank;
    test::ToyStep rig({}, settings, {.world = world.get(), .data = world.get()});
    if (rank == 1) rig.model.poison = {3, false, 1, 1, 1};
    told[rank] = find_non_finite(rig.workspace, rig.input);
  });
  EXPECT_THAT(
      told[1].text,
      HasSubstr("The first on this rank that is not finite: output hidden of layer block_1"));
  EXPECT_EQ(told[0].text, "What is not finite began on rank 1; see what it says.");
  EXPECT_TRUE(told[1].to_tell && !told[0].to_tell);
}

}  // namespace
}  // namespace fastllm::train
