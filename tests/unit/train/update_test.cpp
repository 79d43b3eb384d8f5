// What becomes of a step's gradients: which steps update the weights, which end the run, what is said.
#include "core/train/update.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/support/captured_log.hpp"
#include "tests/unit/train/toy_step.hpp"

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Policy = DivergenceSettings::Policy;

class UpdateTest : public ::testing::Test {
 protected:
  // Starts over with the settings of now.
  void start() {
    updater.reset();
    step.emplace(options, settings);
    updater.emplace(step->settings, step->workspace);
  }
  // The n-th step and what became of it.
  std::optional<Updater::Update> take(int64_t i) {
    step->input.step = i;
    step->input.loss_scale = step->workspace.scaler.scale();
    output = step->run();
    return updater->update(i, step->input, output);
  }
  std::vector<std::string> lines(const std::string& word) const { return log.lines(word); }

  test::CapturedLog log;
  test::ToyOptions options;
  Settings settings = test::toy_settings();
  std::optional<test::ToyStep> step;
  std::optional<Updater> updater;
  StepOutput output;
};

TEST_F(UpdateTest, AGoodStepMovesTheWeights) {
  settings.optimizer.learning_rate.base = 1e-2;
  start();
  const std::vector<float> before = step->weights();
  const auto update = take(1);
  ASSERT_TRUE(update && update->done);
  EXPECT_EQ(update->learning_rate, 1e-2);
  EXPECT_GT(update->gradient_norm, 0);
  EXPECT_NE(step->weights(), before);
  EXPECT_EQ(updater->take_skipped() + updater->take_nan() + updater->diverged_at(), 0);
}

// The model defines "energy" first, a loss of its blocks; "loss" is the one over labels, and is shown first.
TEST_F(UpdateTest, BoundsAreForTheLossOverLabelsAlone) {
  start();
  take(1);
  const double loss = output.losses.at("loss"), energy = output.losses.at("energy");
  ASSERT_GT(energy, 0.1);
  EXPECT_EQ(step->workspace.loss_names, (std::vector<std::string>{"loss", "energy"}));
  settings.training.divergence.loss_threshold = loss + energy / 2;
  start();
  EXPECT_TRUE(take(1));
  settings.training.divergence.loss_threshold = loss - 1e-3;
  start();
  EXPECT_FALSE(take(1));
  EXPECT_THAT(lines("diverged"), ElementsAre(HasSubstr("Iteration 1 diverged: loss is ")));
}

TEST_F(UpdateTest, AModelWithoutALossOverLabelsIsJudgedByItsFirst) {
  start();
  model::Description d = step->model.description();
  for (auto& port : d.layers.back().outputs) port.flags &= ~uint32_t(FASTLLM_PORT_SUM);
  // Names and flags are all that counts here.
  EXPECT_EQ(main_loss(d), "energy");
  EXPECT_EQ(main_loss(step->model.description()), "loss");
}

TEST_F(UpdateTest, TheWeightsAreUntouchedByAStepThatDiverged) {
  for (const Policy policy : {Policy::kStop, Policy::kSkip}) {
    settings.training.divergence.policy = policy;
    start();
    step->model.poison = {3, false, 1, 1, 0};
    const std::vector<float> before = step->weights();
    const auto update = take(1);
    EXPECT_EQ(update.has_value(), policy == Policy::kSkip);
    EXPECT_FALSE(update && update->done);
    EXPECT_EQ(step->weights(), before);
    EXPECT_EQ(updater->take_skipped(), 1);
    EXPECT_EQ(updater->take_nan(), 1);
    EXPECT_EQ(updater->take_nan(), 0);  // taken
  }
}

// What the search for the origin meets is no reason to die: the policy says what happens.
TEST_F(UpdateTest, ARepetitionThatFailsIsToldAndThePolicyGoesOn) {
  for (const Policy policy : {Policy::kStop, Policy::kSkip, Policy::kContinue}) {
    settings.training.divergence.policy = policy;
    start();
    step->model.poison = {2, false, 1, 2, 0};
    step->model.fail_forward = 5;
    step->model.fail_at = 3;  // the head's first forward in the repetition
    const std::vector<float> before = step->weights();
    const auto update = take(1);
    EXPECT_EQ(update.has_value(), policy != Policy::kStop);
    // The gradients are gone with the repetition: nothing to continue with.
    EXPECT_FALSE(update && update->done);
    EXPECT_EQ(step->weights(), before);
    EXPECT_EQ(updater->diverged_at(), 0);
  }
  EXPECT_THAT(lines("Iteration 1 diverged"),
              testing::Each(HasSubstr("Iteration 1 diverged: energy is nan. (could not repeat the "
                                      "step: told to fail) Its update is left out.")));
  EXPECT_EQ(lines("Iteration 1 diverged").size(), 3u);
}

// A loss out of bounds hides no gradient that is no number.
TEST_F(UpdateTest, ContinuingAfterALargeLossStillNoticesGradientsThatAreNoNumbers) {
  settings.training.divergence.policy = Policy::kContinue;
  settings.training.divergence.loss_threshold = 0.01;
  start();
  step->model.poison = {2, true, 2, 2, 0};
  EXPECT_TRUE(take(1)->done);
  EXPECT_EQ(updater->diverged_at(), 0);
  EXPECT_TRUE(take(2)->done);
  EXPECT_EQ(updater->diverged_at(), 2);
  EXPECT_EQ(lines("Nothing is saved from here on").size(), 1u);
}

// ---------------------------------------------------------------- loss scaling

optim::ScalerOptions dynamic(double initial, double minimum) {
  return {.kind = optim::ScalerKind::kDynamic,
          .initial = initial,
          .minimum = minimum,
          .window = 1000,
          .hysteresis = 1};
}

TEST_F(UpdateTest, AScaleOnItsWayDownIsNoDivergence) {
  settings.training.divergence.max_skipped = 2;
  settings.optimizer.scaler = dynamic(1024, 1);
  start();
  step->model.poison = {2, true, 1, 10, 0};
  for (int i = 1; i <= 10; ++i) EXPECT_TRUE(take(i)) << i;  // 1024 = 2^10 ends at 1
  EXPECT_EQ(step->workspace.scaler.scale(), 1);
  EXPECT_TRUE(take(11)->done);
  EXPECT_THAT(lines("diverged"), IsEmpty());
}

TEST_F(UpdateTest, SkippingForGoodAtAScaleThatCannotMoveIsADivergence) {
  struct Case {
    optim::ScalerOptions scaler;
    bool backward;
    std::string said;
  };
  const Case cases[] = {
      {{.kind = optim::ScalerKind::kConstant, .constant = 64},
       true,
       "not finite at the constant loss scale 64.0 (optimizer.gradient_scaler.constant). The first "
       "that is not finite: the gradient of block_0.weight"},
      {dynamic(4, 4), false,
       "not finite at the smallest loss scale 4.0 (optimizer.gradient_scaler.minimum). The first "
       "that is not finite: output hidden of layer block_0"}};
  for (const Case& c : cases) {
    for (const Policy policy : {Policy::kStop, Policy::kSkip, Policy::kContinue}) {
      settings.training.divergence.policy = policy;
      settings.training.divergence.max_skipped = 3;
      settings.optimizer.scaler = c.scaler;
      const size_t told = lines(c.said).size();
      start();
      const std::vector<float> before = step->weights();
      // Two do not end it, nor do two more after a good step.
      step->model.poison = {2, c.backward, 1, 2, 0};
      EXPECT_FALSE(take(1)->done);
      EXPECT_FALSE(take(2)->done);
      EXPECT_EQ(step->weights(), before);
      EXPECT_TRUE(take(3)->done);
      const std::vector<float> good = step->weights();
      step->model.poison = {2, c.backward, 4, 100, 0};
      EXPECT_FALSE(take(4)->done);
      EXPECT_FALSE(take(5)->done);
      EXPECT_EQ(lines(c.said).size(), told);
      const auto last = take(6);
      EXPECT_EQ(last.has_value(), policy == Policy::kContinue);
      ASSERT_EQ(lines(c.said).size(), told + 1);
      EXPECT_THAT(lines(c.said).back(),
                  HasSubstr("Iteration 6 diverged: no update took place 3 times in a row"));
      if (last) {  // goes on leaving out what would harm the weights; told once a row
        EXPECT_FALSE(last->done);
        EXPECT_FALSE(take(7)->done);
        EXPECT_EQ(updater->diverged_at(), 0);
        EXPECT_EQ(lines(c.said).size(), told + 1);
      }
      EXPECT_EQ(step->weights(), good);
    }
  }
}

}  // namespace
}  // namespace fastllm::train
