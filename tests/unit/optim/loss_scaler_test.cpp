// The table of the reference, and what is told.
#include "core/optim/loss_scaler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/log.hpp"
#include "tests/support/captured_log.hpp"

namespace fastllm::optim {
namespace {

using testing::HasSubstr;
using testing::Not;

class LossScalerTest : public testing::Test {
 protected:
  test::CapturedLog log_;
};

ScalerOptions dynamic(int64_t window) {
  ScalerOptions options;
  options.kind = ScalerKind::kDynamic;
  options.window = window;
  return options;
}

void expect(const LossScaler& scaler, double scale, int64_t growth, int64_t hysteresis) {
  EXPECT_EQ(scaler.scale(), scale);
  EXPECT_EQ(scaler.growth(), growth);
  EXPECT_EQ(scaler.hysteresis(), hysteresis);
}

TEST_F(LossScalerTest, DynamicFollowsTheReference) {
  LossScaler scaler(dynamic(4));
  scaler.start();
  EXPECT_STREQ(scaler.type(), "DynamicGradScaler");
  EXPECT_TRUE(scaler.skips_non_finite());
  expect(scaler, 65536, 0, 2);
  scaler.update(true);
  expect(scaler, 65536, 0, 1);
  scaler.update(true);
  expect(scaler, 32768, 0, 0);
  scaler.update(true);
  expect(scaler, 16384, 0, -1);
  for (int i = 1; i < 4; ++i) {
    scaler.update(false);
    expect(scaler, 16384, i, -1);
  }
  scaler.update(false);
  expect(scaler, 32768, 0, 2);
  EXPECT_THAT(log_.text(), testing::AllOf(HasSubstr("Setting loss scale to 65536.0\n"),
                                          HasSubstr("Setting loss scale to 16384.0\n")));
}

TEST_F(LossScalerTest, AFailureStartsGrowthAnew) {
  LossScaler scaler(dynamic(3));
  scaler.update(false);
  scaler.update(false);
  scaler.update(true);
  expect(scaler, 65536, 0, 1);
  scaler.update(false);
  expect(scaler, 65536, 1, 1);  // hysteresis comes back with the next growth alone
}

TEST_F(LossScalerTest, StopsAtTheMinimumAndTellsSoOnce) {
  ScalerOptions options = dynamic(4);
  options.initial = 3;
  options.minimum = 2;
  options.hysteresis = 1;
  LossScaler scaler(options);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_THAT(log_.text(), Not(HasSubstr("smallest loss scale")));
  scaler.update(true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 2);
  const std::string text = log_.text(),
                    warning =
                        "Gradients overflow at the smallest loss scale, 2.0: updates are "
                        "skipped until they do not; lower optimizer.learning_rate.base or "
                        "set model.distributed.training_dtype to bfloat16.";
  ASSERT_THAT(text, HasSubstr(warning));
  EXPECT_EQ(text.find(warning), text.rfind(warning));
}

TEST_F(LossScalerTest, ConstantStays) {
  ScalerOptions options;
  options.kind = ScalerKind::kConstant;
  options.constant = 1024;
  LossScaler scaler(options);
  scaler.start();
  EXPECT_STREQ(scaler.type(), "ConstantGradScaler");
  EXPECT_TRUE(scaler.skips_non_finite());
  for (int i = 0; i < 5; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_THAT(log_.text(), HasSubstr("Setting loss scale to 1024.0\n"));
}

TEST_F(LossScalerTest, NoneIsOneAndSilent) {
  LossScaler scaler{ScalerOptions{}};
  scaler.start();
  scaler.update(false);
  scaler.restore(7, 7, 7);
  EXPECT_STREQ(scaler.type(), "NoopGradScaler");
  EXPECT_FALSE(scaler.skips_non_finite());
  EXPECT_EQ(scaler.scale(), 1);
  log::info("the only line");
  EXPECT_THAT(log_.text(), Not(HasSubstr("loss scale")));
}

TEST_F(LossScalerTest, GoesOnFromACheckpoint) {
  LossScaler scaler(dynamic(4));
  scaler.restore(256, 9, -3);  // the window was longer when it was saved
  expect(scaler, 256, 9, -3);
  EXPECT_THAT(log_.text(), HasSubstr("Setting loss scale to 256.0\n"));
  scaler.update(false);
  expect(scaler, 512, 0, 2);
}

TEST_F(LossScalerTest, AConstantOfTheCheckpointIsKeptAndTold) {
  ScalerOptions options;
  options.kind = ScalerKind::kConstant;
  options.constant = 8;
  LossScaler scaler(options);
  scaler.restore(8, 0, 0);
  EXPECT_THAT(log_.text(), Not(HasSubstr("its own loss scale")));
  scaler.restore(4, 0, 0);
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_THAT(log_.text(), HasSubstr("The checkpoint goes on with its own loss scale 4.0, not with "
                                     "optimizer.gradient_scaler.constant: 8.0."));
}

}  // namespace
}  // namespace fastllm::optim
