// The loop with a toy model in plain loops: what is saved and evaluated when, what a stop does, what is printed.
#include "core/train/trainer.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>

#include <sstream>

#include "core/base/cancel.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Tokens are a function of sample and position. Stops the run when a given sample is asked for.
class Counting : public data::SampledDataset {
 public:
  Counting(int64_t size, int64_t stop_at, int slow_ms)
      : size_(size), stop_at_(stop_at), slow_ms_(slow_ms) {}
  int64_t size() const override { return size_; }
  void get(int64_t index, data::Sample& sample) const override {
    if (index == stop_at_) stop_signal() = 15;
    if (slow_ms_) usleep(useconds_t(slow_ms_) * 1000);
    for (size_t i = 0; i < sample.tokens.size(); ++i)
      sample.tokens[i] = (index * 7 + int64_t(i) * 3) % 11;
    sample.document_lengths = {int64_t(sample.tokens.size())};
  }
  std::string name() const override { return "counting"; }
  std::vector<std::string> fingerprints() const override { return {"counting"}; }

 private:
  int64_t size_, stop_at_;
  int slow_ms_;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    stop_signal() = 0;
    log::set_file(folder.path() / "log.txt");
    settings.training.train_iters = 4;
    settings.training.logs = Interval(2, 0);
    settings.training.num_workers = 0;
    settings.batch.batch_size = 2;
    settings.batch.sequential_micro_batches = 2;
    settings.batch.depth_first_micro_batches = 2;
    settings.batch.sequence_length = 5;
  }
  ~TrainerTest() override {
    stop_signal() = 0;
    log::set_file({});
  }

  Outcome run(int64_t stop_at_sample = -1, Phase stop_in = Phase::kTraining, int slow_ms = 0) {
    TrainerParts parts{settings, model};
    parts.make_dataset = [=](Phase phase, int64_t samples) {
      return std::make_shared<Counting>(samples, phase == stop_in ? stop_at_sample : -1, slow_ms);
    };
    return Trainer(parts).run();
  }
  std::vector<std::string> lines(const std::string& word) const {
    std::istringstream text(read_file(folder.path() / "log.txt"));
    std::vector<std::string> found;
    for (std::string line; std::getline(text, line);) {
      if (line.find(word) != std::string::npos) found.push_back(line);
    }
    return found;
  }

  TemporaryDirectory folder;
  Settings settings;
  test::ToyModel model{test::ToyOptions{}};
};

TEST_F(TrainerTest, LogsAtTheIntervalWithEachLossOnceAndTheModelsMetrics) {
  EXPECT_EQ(run(), Outcome::kCompleted);
  auto found = lines("PhaseType.training @");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0], HasSubstr("@ iteration      2/     4 | consumed samples:            4"));
  EXPECT_THAT(found[1], HasSubstr("@ iteration      4/     4"));
  for (const auto& port : {"energy", "accuracy"}) {
    const size_t first = found[0].find(port);
    ASSERT_NE(first, std::string::npos) << found[0];
    EXPECT_EQ(found[0].find(port, first + 1), std::string::npos) << found[0];
  }
}

TEST_F(TrainerTest, ValidatesWhenDueAndAtTheEnd) {
  settings.training.validation = Interval(3, 0);
  settings.training.validation_iterations = 2;
  EXPECT_EQ(run(), Outcome::kCompleted);
  auto found = lines("PhaseType.validation @");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0], HasSubstr("iteration      3/"));
  EXPECT_THAT(found[1], HasSubstr("iteration      4/"));
  EXPECT_THAT(found[0], Not(HasSubstr("learning rate")));
}

TEST_F(TrainerTest, TestsAtTheEnd) {
  settings.training.test_iters = 1;
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_EQ(lines("Running test phase").size(), 1u);
  EXPECT_EQ(lines("PhaseType.test @").size(), 1u);
}

TEST_F(TrainerTest, APlannedStopIsNoInterruption) {
  settings.training.shutdown = Interval(3, 0);
  EXPECT_EQ(run(), Outcome::kPlannedStop);
  EXPECT_TRUE(lines("Interrupt signal").empty());
}

TEST_F(TrainerTest, ASignalFinishesTheStepAndIsTold) {
  EXPECT_EQ(run(2), Outcome::kInterrupted);  // sample 2 is in the second step
  EXPECT_THAT(lines("Interrupt signal"),
              ElementsAre(HasSubstr("SIGTERM received: stopped after iteration 2, nothing is saved "
                                    "(run.experiment_dir is not set)")));
}

TEST_F(TrainerTest, ASignalInTheLastValidationIsTold) {
  settings.training.validation = Interval(4, 0);
  settings.training.validation_iterations = 3;
  EXPECT_EQ(run(6, Phase::kValidation), Outcome::kInterrupted);
  EXPECT_THAT(lines("is not repeated"),
              ElementsAre(HasSubstr("The validation at iteration 4 was interrupted")));
  EXPECT_TRUE(lines("PhaseType.validation @").empty());
}

TEST_F(TrainerTest, SlowDataIsTold) {
  settings.data.batch_warn_ms = 1;
  settings.training.train_iters = 1;
  run(-1, Phase::kTraining, 5);
  EXPECT_EQ(lines("Data loading took").size(), 1u);
}

TEST_F(TrainerTest, WhatIsNoNumberIsToldOnceAndCounted) {
  settings.optimizer.learning_rate.base = 1e38;
  settings.training.train_iters = 8;
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_EQ(lines("Expected finite losses and gradients").size(), 1u);
  EXPECT_THAT(lines("PhaseType.training @").back(), HasSubstr("nan iterations:   2"));
}

// ---------------------------------------------------------------- loss scaling

TEST_F(TrainerTest, ADynamicScaleComesDownUntilGradientsFit) {
  settings.distributed.training_dtype = "float16";
  settings.optimizer.scaler = {
      .kind = optim::ScalerKind::kDynamic, .initial = 0x1p40, .window = 1000, .hysteresis = 2};
  settings.training.train_iters = 40;
  settings.training.logs = Interval(40, 0);
  EXPECT_EQ(run(), Outcome::kCompleted);
  const auto scales = lines("Setting loss scale to");
  ASSERT_GT(scales.size(), 10u);  // float16 ends at 65504
  ASSERT_LT(scales.size(), 40u);
  EXPECT_THAT(scales[0], HasSubstr("Setting loss scale to 1099511627776.0"));
  EXPECT_THAT(scales[1], HasSubstr("Setting loss scale to 549755813888.0"));
  const std::string line = lines("PhaseType.training @").back();
  // The first failure only used up the hysteresis; each of the others halved the scale.
  EXPECT_THAT(line, HasSubstr("skipped iterations: " + fmt::format("{:3}", scales.size())));
  EXPECT_THAT(line, HasSubstr(fmt::format("loss scale: {:5.0f}",
                                          0x1p40 / std::pow(2.0, double(scales.size() - 1)))));
  EXPECT_THAT(line, HasSubstr("nan iterations:   0"));
  EXPECT_THAT(line, Not(HasSubstr("grad norm: nan")));
  EXPECT_TRUE(lines("Expected finite losses").empty());
}

TEST_F(TrainerTest, ASkippedUpdateIsLeftOutOfTheLine) {
  settings.distributed.training_dtype = "float16";
  settings.optimizer.scaler = {.kind = optim::ScalerKind::kConstant, .constant = 0x1p60};
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_THAT(lines("Setting loss scale to"),
              ElementsAre(HasSubstr("Setting loss scale to 1.152921504606847e+18")));
  for (const std::string& line : lines("PhaseType.training @")) {
    EXPECT_THAT(line, HasSubstr("skipped iterations:   2"));
    EXPECT_THAT(line, HasSubstr("learning rate: nan"));
    EXPECT_THAT(line, HasSubstr("grad norm: nan"));
    EXPECT_THAT(line, HasSubstr("| loss: nan"));
  }
}

// A scale that is a power of two comes out of the update to the last bit.
TEST_F(TrainerTest, AConstantScaleChangesNothingElse) {
  run();
  std::vector<std::string> plain = lines("PhaseType.training @");
  log::set_file({});
  settings.optimizer.scaler = {.kind = optim::ScalerKind::kConstant, .constant = 256};
  log::set_file(folder.path() / "log.txt");
  run();
  std::vector<std::string> scaled = lines("PhaseType.training @");
  scaled.erase(scaled.begin(), scaled.begin() + std::ptrdiff_t(plain.size()));
  ASSERT_EQ(scaled.size(), plain.size());
  auto numbers = [](const std::string& line) {  // norm and losses
    const size_t norm = line.find("grad norm"), skipped = line.find("skipped");
    return line.substr(norm, skipped - norm) + line.substr(line.find("| energy"));
  };
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(numbers(scaled[i]), numbers(plain[i]));
    EXPECT_THAT(scaled[i], HasSubstr("loss scale:   256"));
  }
}

TEST_F(TrainerTest, NothingToTrainIsFine) {
  settings.training.train_iters = 0;
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_EQ(lines("done with setup").size(), 1u);
  EXPECT_TRUE(lines("Training ...").empty());
}

}  // namespace
}  // namespace fastllm::train
