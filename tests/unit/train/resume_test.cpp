// A run stopped by a signal at any sample and started again leaves the metrics of one that never stopped.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "core/base/cancel.hpp"
#include "core/base/file.hpp"
#include "core/train/compare.hpp"
#include "core/train/trainer.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/unit/checkpoint/formats.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

// Sends the signal when sample `stop_at` is asked for.
class Stopping : public data::SampledDataset {
 public:
  Stopping(int64_t size, int64_t stop_at) : size_(size), stop_at_(stop_at) {}
  int64_t size() const override { return size_; }
  void get(int64_t index, data::Sample& sample) const override {
    if (index == stop_at_) stop_signal() = 15;
    for (size_t i = 0; i < sample.tokens.size(); ++i)
      sample.tokens[i] = (index * 7 + int64_t(i) * 3) % 11;
    sample.document_lengths = {int64_t(sample.tokens.size())};
  }
  std::string name() const override { return "stopping"; }
  std::vector<std::string> fingerprints() const override { return {}; }

 private:
  int64_t size_, stop_at_;
};

class Resume : public ::testing::Test {
 protected:
  Resume() {
    settings.training.train_iters = 6;
    settings.training.logs = Interval(3, 0);
    settings.training.num_workers = 0;
    settings.training.validation = {{"", Interval(2, 0), 2}, {"other", Interval(3, 0), 2}};
    settings.batch.batch_size = 2;
    settings.batch.sequential_micro_batches = 2;
    settings.batch.depth_first_micro_batches = 2;
    settings.batch.sequence_length = 5;
  }
  ~Resume() override { stop_signal() = 0; }

  // One run in the experiment, which a signal stops at that sample of that dataset, if any.
  Outcome run(const fs::path& experiment, const std::string& stop_in = "", int64_t stop_at = -1) {
    stop_signal() = 0;
    RunDirectory directory(experiment);
    test::ToyModel model{test::ToyOptions{}};
    TrainerParts parts{settings, model};
    parts.run = &directory;
    parts.make_dataset = [&](const std::string& name, int64_t samples) {
      return std::make_shared<Stopping>(samples, name == stop_in ? stop_at : -1);
    };
    parts.make_checkpoints = [&](const Datasets&) {
      checkpoint::ManagerOptions options;
      options.experiment_dir = experiment;
      options.format = &format;
      options.model.type = "toy";
      options.config = config::Node::map();
      return std::make_unique<checkpoint::CheckpointManager>(std::move(options));
    };
    return Trainer(parts).run();
  }

  // Starts again and again until the run is done.
  void finish(const fs::path& experiment) {
    for (int starts = 0; run(experiment) != Outcome::kCompleted; ++starts) ASSERT_LT(starts, 3);
  }

  void expect_same_metrics(const fs::path& experiment) {
    if (!whole_is_there_) {
      ASSERT_EQ(run(folder.path() / "whole"), Outcome::kCompleted);
    }
    whole_is_there_ = true;
    const RecordedRun expected = read_run(folder.path() / "whole"), found = read_run(experiment);
    // Two lines of training, three validations of one set, two of the other.
    ASSERT_EQ(expected.losses.size(), 7u);
    const Comparison comparison = compare_runs(expected, found, 0);
    EXPECT_THAT(comparison.only_a, IsEmpty());
    EXPECT_THAT(comparison.only_b, IsEmpty());
    EXPECT_TRUE(comparison.losses_agree()) << comparison_text(comparison, 0);
  }

  TemporaryDirectory folder;
  test::CapturedLog log;
  Settings settings;
  test::MemoryFormat format;

 private:
  bool whole_is_there_ = false;
};

TEST_F(Resume, GivesTheMetricsOfARunThatNeverStopped) {
  // Samples that are read of each: two a step. Sets begin after the place of iteration 0.
  struct Range {
    std::string dataset;
    int64_t first, end;
  };
  for (const auto& [name, first, end] :
       {Range{"Training", 0, 12}, Range{"Validation", 4, 16}, Range{"other", 4, 12}}) {
    for (int64_t stop_at = first; stop_at < end; ++stop_at) {
      SCOPED_TRACE(fmt::format("stopped at sample {} of {}", stop_at, name));
      const fs::path experiment = folder.path() / fmt::format("{}-{}", name, stop_at);
      run(experiment, name, stop_at);
      EXPECT_EQ(stop_signal().load(), 15);
      finish(experiment);
      expect_same_metrics(experiment);
    }
  }
}

TEST_F(Resume, AnEvaluationInterruptedAgainStaysDue) {
  const fs::path experiment = folder.path() / "twice";
  const int64_t sample = 9;  // of the second validation, after iteration 4
  EXPECT_EQ(run(experiment, "Validation", sample), Outcome::kInterrupted);
  EXPECT_EQ(run(experiment, "Validation", sample), Outcome::kInterrupted);
  EXPECT_THAT(
      log.lines("Interrupt signal"),
      ElementsAre(HasSubstr("stopped after iteration 4, everything is saved; the next start "
                            "does the validation first."),
                  HasSubstr("the next start does the validation first.")));
  finish(experiment);
  expect_same_metrics(experiment);
}

TEST_F(Resume, ADueEvaluationThatHasNoPlaceAnyMoreIsToldAndLeftOut) {
  const fs::path experiment = folder.path() / "changed";
  EXPECT_EQ(run(experiment, "other", 4), Outcome::kInterrupted);  // after iteration 3
  settings.training.validation.pop_back();
  EXPECT_EQ(run(experiment), Outcome::kCompleted);
  EXPECT_THAT(log.lines("is left out"), ElementsAre(HasSubstr("The validation/other that was "
                                                              "interrupted after iteration 3")));
}

}  // namespace
}  // namespace fastllm::train
