// The loop with a toy model in plain loops: what is saved and evaluated when, what a stop does, what is printed.
#include "core/train/trainer.hpp"

#include <gmock/gmock.h>

#include <unistd.h>

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

TEST_F(TrainerTest, NothingToTrainIsFine) {
  settings.training.train_iters = 0;
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_EQ(lines("done with setup").size(), 1u);
  EXPECT_TRUE(lines("Training ...").empty());
}

}  // namespace
}  // namespace fastllm::train
