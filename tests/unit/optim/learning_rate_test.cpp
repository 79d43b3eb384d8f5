// The tables of docs/compatibility.md, the text form, and every sentence a wrong setting gets.
#include "core/optim/learning_rate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::optim {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

LearningRate warmed_up(DecayStyle style) {
  LearningRate rate;
  rate.base = 1e-3;
  rate.minimum = 1e-4;
  rate.warmup_iterations = 10;
  rate.decay_iterations = 110;
  rate.decay_style = style;
  return rate;
}

LearningRate text(const std::string& schedule) {
  LearningRate rate;
  rate.schedule = schedule;
  return rate;
}

TEST(LearningRate, CosineWithWarmup) {
  const LearningRate rate = warmed_up(DecayStyle::kCosine);
  rate.validate();
  EXPECT_DOUBLE_EQ(rate.at(1), 1e-4);
  EXPECT_DOUBLE_EQ(rate.at(5), 5e-4);
  EXPECT_DOUBLE_EQ(rate.at(10), 1e-3);
  EXPECT_DOUBLE_EQ(rate.at(60), 5.5e-4);
  EXPECT_DOUBLE_EQ(rate.at(110), 1e-4);
  EXPECT_DOUBLE_EQ(rate.at(100000), 1e-4);
}

TEST(LearningRate, StylesHalfwayAndWithPower) {
  EXPECT_DOUBLE_EQ(warmed_up(DecayStyle::kLinear).at(60), 5.5e-4);
  LearningRate power = warmed_up(DecayStyle::kPower);
  power.decay_power = 2;
  EXPECT_DOUBLE_EQ(power.at(60), 1e-3 + 0.25 * (1e-4 - 1e-3));
  LearningRate cosine = warmed_up(DecayStyle::kCosine);
  cosine.decay_power = 0.5;
  EXPECT_DOUBLE_EQ(cosine.at(35), 1e-3 + 0.5 * (1e-4 - 1e-3));  // c = 1/4, its root 1/2
  LearningRate constant = warmed_up(DecayStyle::kConstant);
  EXPECT_DOUBLE_EQ(constant.at(4), 4e-4);
  EXPECT_DOUBLE_EQ(constant.at(5000), 1e-3);
  constant.decay_iterations.reset();
  constant.validate();
  EXPECT_DOUBLE_EQ(LearningRate().at(1), 1e-4);
}

TEST(LearningRate, TextFollowsStageByStage) {
  const LearningRate rate = text("linear,10,0,0.001;constant,100,0.001;cosine,100,0.001,0.0001");
  rate.validate();
  EXPECT_DOUBLE_EQ(rate.at(1), 1e-4);
  EXPECT_DOUBLE_EQ(rate.at(9), 9e-4);
  EXPECT_DOUBLE_EQ(rate.at(10), 1e-3);
  EXPECT_DOUBLE_EQ(rate.at(109), 1e-3);
  EXPECT_DOUBLE_EQ(rate.at(160), 5.5e-4);
  EXPECT_DOUBLE_EQ(rate.at(210), 1e-4);
  EXPECT_DOUBLE_EQ(rate.at(999), 1e-4);
  EXPECT_DOUBLE_EQ(text(" power, 10, 1, 0, 2 ; constant, -1, 0.5").at(5), 0.75);
  EXPECT_DOUBLE_EQ(text("power,10,1,0,2;constant,-1,0.5").at(1000), 0.5);
}

std::string refusal(const LearningRate& rate) {
  return test::message_of([&] { rate.validate(); }, Status::kInvalid);
}

TEST(LearningRate, RefusesWithTheKeyInFront) {
  LearningRate rate = warmed_up(DecayStyle::kLinear);
  rate.decay_iterations.reset();
  EXPECT_THAT(refusal(rate), StartsWith("decay_iterations: expected the update at which decay ends "
                                        "since decay_style is not constant, found none"));
  rate.decay_iterations = 10;
  EXPECT_THAT(refusal(rate),
              StartsWith("decay_iterations: expected more than warmup_iterations (10)"));
  rate = warmed_up(DecayStyle::kLinear);
  rate.warmup_iterations = -1;
  EXPECT_THAT(refusal(rate), StartsWith("warmup_iterations: expected a number from 0, found -1"));
  rate = warmed_up(DecayStyle::kLinear);
  rate.decay_power = 0;
  EXPECT_THAT(refusal(rate), StartsWith("decay_power: expected a number above 0, found 0"));
  rate.base = -1;
  EXPECT_THAT(refusal(rate), StartsWith("base: expected a learning rate from 0, found -1"));
  rate.base = 1;
  rate.minimum = -1;
  EXPECT_THAT(refusal(rate), StartsWith("minimum: expected a learning rate from 0, found -1"));

  EXPECT_THAT(refusal(text("linear,10")),
              StartsWith("schedule: expected stages \"type,num_steps,lr[,end_lr[,power]]\""));
  EXPECT_THAT(refusal(text("step,10,1")),
              HasSubstr("as the type of stage \"step,10,1\", found \"step\""));
  EXPECT_THAT(
      refusal(text("constant,ten,1")),
      HasSubstr("expected a whole number of steps in stage \"constant,ten,1\", found \"ten\""));
  EXPECT_THAT(refusal(text("constant,10,1x")), HasSubstr("expected a learning rate in stage"));
  EXPECT_THAT(refusal(text("constant,10,inf")), HasSubstr("expected a learning rate in stage"));
  EXPECT_THAT(refusal(text("constant,10,-1")), HasSubstr("learning rates from 0"));
  EXPECT_THAT(refusal(text("constant,10,1,2")), HasSubstr("constant stage to have one rate"));
  EXPECT_THAT(refusal(text("linear,10,1")),
              HasSubstr("expected an end rate in stage \"linear,10,1\""));
  EXPECT_THAT(refusal(text("power,10,1,0,0")), HasSubstr("expected a power above 0"));
  EXPECT_THAT(refusal(text("linear,-1,1,0")), HasSubstr("expected a length in stage"));
  EXPECT_THAT(refusal(text("constant,0,1")), HasSubstr("other than 0"));
  EXPECT_THAT(refusal(text("constant,-1,1;constant,1,1")), HasSubstr("in the last stage alone"));
  EXPECT_THAT(refusal(text("constant,9000000000000000000,1;constant,9000000000000000000,1")),
              HasSubstr("less than 2^63 steps"));
}

}  // namespace
}  // namespace fastllm::optim
