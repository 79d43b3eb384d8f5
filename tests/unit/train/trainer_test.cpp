// The loop with a toy model in plain loops: what is saved and evaluated when, what a stop does, what is printed.
#include "core/train/trainer.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>

#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// What was read of a dataset, by loaders of any number of threads.
class Reads {
 public:
  void add(int64_t index) {
    std::lock_guard lock(mutex_);
    indices_.push_back(index);
    changed_.notify_all();
  }
  std::vector<int64_t> indices() const {
    std::lock_guard lock(mutex_);
    return indices_;
  }
  // False: they did not come in a minute, so they never will.
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1),
                             [&] { return indices_.size() >= count; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> indices_;
};

// Tokens are a function of sample and position. Stops the run when a given sample is asked for, and
// gives that one up if `stuck`, as one that waits for a process.
class Counting : public data::SampledDataset {
 public:
  Counting(int64_t size, int64_t stop_at, bool stuck, int slow_ms, Reads& reads)
      : size_(size), stop_at_(stop_at), stuck_(stuck), slow_ms_(slow_ms), reads_(reads) {}
  int64_t size() const override { return size_; }
  void get(int64_t index, data::Sample& sample) const override {
    if (index == stop_at_) stop_signal() = 15;
    if (index == stop_at_ && stuck_) throw Error(Status::kCancelled, "no answer");
    if (slow_ms_) usleep(useconds_t(slow_ms_) * 1000);
    for (size_t i = 0; i < sample.tokens.size(); ++i)
      sample.tokens[i] = (index * 7 + int64_t(i) * 3) % 11;
    sample.document_lengths = {int64_t(sample.tokens.size())};
    reads_.add(index);
  }
  std::string name() const override { return "counting"; }
  std::vector<std::string> fingerprints() const override { return {"counting"}; }

 private:
  int64_t size_, stop_at_;
  bool stuck_;
  int slow_ms_;
  Reads& reads_;
};

// Its first layer waits, in each step, until it is let go on.
class WaitingModel : public test::ToyModel {
 public:
  explicit WaitingModel(std::function<void()> wait)
      : ToyModel(test::ToyOptions{}), wait_(std::move(wait)) {}
  model::Saved forward(int layer, const fastllm_call& call, std::span<const DLTensor* const> in,
                       std::span<DLTensor* const> out) override {
    if (layer == 0 && wait_) wait_();
    return ToyModel::forward(layer, call, in, out);
  }

 private:
  std::function<void()> wait_;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    stop_signal() = 0;
    settings.training.train_iters = 4;
    settings.training.logs = Interval(2, 0);
    settings.training.num_workers = 0;
    settings.batch.batch_size = 2;
    settings.batch.sequential_micro_batches = 2;
    settings.batch.depth_first_micro_batches = 2;
    settings.batch.sequence_length = 5;
  }
  ~TrainerTest() override { stop_signal() = 0; }

  Outcome run(int64_t stop_at_sample = -1, const std::string& stop_in = "Training",
              int slow_ms = 0) {
    TrainerParts parts{settings, model};
    parts.clock = clock;
    parts.make_dataset = [=, this](const std::string& name, int64_t samples) {
      sizes[name] = samples;
      return std::make_shared<Counting>(samples, name == stop_in ? stop_at_sample : -1, stuck,
                                        slow_ms, reads[name]);
    };
    return Trainer(parts).run();
  }
  std::vector<std::string> lines(const std::string& word) const { return log.lines(word); }

  // Iteration numbers of the lines that hold the word.
  std::vector<int> iterations(const std::string& word) const {
    std::vector<int> found;
    for (const std::string& line : lines(word))
      found.push_back(std::stoi(line.substr(line.find("@ iteration") + 11)));
    return found;
  }

  TemporaryDirectory folder;
  test::CapturedLog log;
  Settings settings;
  Clock clock;                           // null: the real one
  std::map<std::string, int64_t> sizes;  // of the datasets that were made
  std::map<std::string, Reads> reads;
  bool stuck = false;  // the sample that stops the run
  test::ToyModel model{test::ToyOptions{}};
};

TEST_F(TrainerTest, TheLoaderKnowsHowManyMicroBatchesAStepTakes) {
  settings.training.num_workers = 2;
  settings.batch.sequential_micro_batches = 32;
  EXPECT_EQ(data::read_ahead(loader_options(settings, 0, 1, 0)), 2 * 32);
}

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
  settings.training.validation = {{"", Interval(3, 0), 2}};
  EXPECT_EQ(run(), Outcome::kCompleted);
  auto found = lines("PhaseType.validation @");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0], HasSubstr("iteration      3/"));
  EXPECT_THAT(found[1], HasSubstr("iteration      4/"));
  EXPECT_THAT(found[0], Not(HasSubstr("learning rate")));
}

TEST_F(TrainerTest, EverySetHasItsOwnIntervalAndLine) {
  settings.training.validation = {{"", Interval(3, 0), 2}, {"code", Interval(2, 1), 1}};
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_THAT(iterations("PhaseType.validation @"), ElementsAre(3, 4));
  EXPECT_THAT(iterations(" validation/code @"), ElementsAre(1, 3, 4));
}

std::vector<int64_t> numbers(int64_t first, int64_t end) {
  std::vector<int64_t> all(size_t(end - first));
  std::iota(all.begin(), all.end(), first);
  return all;
}

// Iteration 0 counts as an evaluation that nobody does: its samples are never read
// (docs/compatibility.md). An evaluation goes on where the one before it ended.
TEST_F(TrainerTest, EvaluationsReadTheirOwnSamples) {
  settings.training.train_iters = 100;
  settings.training.logs = Interval(50, 0);
  settings.batch.batch_size = 8;
  settings.batch.micro_batch_size = 4;
  settings.training.validation = {{"", Interval(30, 0), 5}, {"code", Interval(30, 20), 5}};
  const std::string plain = settings.training.validation[0].dataset(),
                    code = settings.training.validation[1].dataset();
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_THAT(iterations("PhaseType.validation @"), ElementsAre(30, 60, 90, 100));
  EXPECT_EQ(sizes.at(plain), 200);
  EXPECT_EQ(reads.at(plain).indices(), numbers(40, 200));
  // With an offset iteration 0 is no evaluation.
  EXPECT_THAT(iterations(" validation/code @"), ElementsAre(20, 50, 80, 100));
  EXPECT_EQ(sizes.at(code), 160);
  EXPECT_EQ(reads.at(code).indices(), numbers(0, 160));
  EXPECT_EQ(reads.at("Training").indices(), numbers(0, 800));
}

// Seconds pass only in steps: each call of the clock is half of one.
TEST_F(TrainerTest, TimeIsAnIntervalToo) {
  int64_t calls = 0;
  clock = [&] { return double(calls++) / 2; };
  settings.training.train_iters = 8;
  settings.training.logs = Interval(std::nullopt, 0, 5.);
  settings.training.validation = {{"timed", Interval(std::nullopt, 0, 9.), 1}};
  EXPECT_EQ(run(), Outcome::kCompleted);
  const auto logged = iterations("PhaseType.training @"),
             evaluated = iterations("validation/timed @");
  ASSERT_GE(logged.size(), 2u);
  EXPECT_LT(logged.size(), 8u);
  EXPECT_GT(logged.front(), 1);
  ASSERT_GE(evaluated.size(), 2u);
  EXPECT_LT(evaluated.size(), logged.size() + 1);
  EXPECT_EQ(evaluated.back(), 8);  // the end
  // Each evaluation by time looks at the same samples, but at other weights.
  EXPECT_LT(evaluated.front(), 8);
}

TEST_F(TrainerTest, ALimitOfTimeIsAPlannedStop) {
  double now = 0;
  clock = [&] { return now += 1; };
  settings.training.train_iters = 1000;
  settings.training.wall_clock_limit = 60;
  EXPECT_EQ(run(), Outcome::kPlannedStop);
  EXPECT_EQ(lines("Reached training.wall_clock_limit (60 s): stopping after iteration").size(), 1u);
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

TEST_F(TrainerTest, ASignalEndsTheWaitForASampleToo) {
  stuck = true;
  for (const int workers : {0, 2}) {
    settings.training.num_workers = workers;
    stop_signal() = 0;
    EXPECT_EQ(run(4), Outcome::kInterrupted);  // in the third step
  }
  EXPECT_THAT(lines("Interrupt signal").front(), HasSubstr("stopped after iteration 2"));
  settings.training.num_workers = 0;
  settings.training.validation = {{"", Interval(4, 0), 3}};
  stop_signal() = 0;
  EXPECT_EQ(run(8, "Validation"), Outcome::kInterrupted);
  EXPECT_THAT(lines("it gives no result"),
              ElementsAre(HasSubstr("The validation at iteration 4 was interrupted")));
}

TEST_F(TrainerTest, ASignalInTheLastValidationIsTold) {
  settings.training.validation = {{"", Interval(4, 0), 3}};
  EXPECT_EQ(run(6, "Validation"), Outcome::kInterrupted);
  EXPECT_THAT(lines("it gives no result"),
              ElementsAre(HasSubstr("The validation at iteration 4 was interrupted")));
  EXPECT_TRUE(lines("PhaseType.validation @").empty());
}

TEST_F(TrainerTest, ASignalLosesNoProfile) {
  settings.profiling.cpu = settings.profiling.averages = settings.profiling.log = true;
  settings.profiling.skip = settings.profiling.warmup = 0;
  settings.profiling.cycles = 4;
  EXPECT_EQ(run(2), Outcome::kInterrupted);
  EXPECT_EQ(lines("Profile of the iterations up to 2:").size(), 1u);
  // It comes when all was decided after the second step, and is seen before the third.
  stop_signal() = 0;
  const test::CapturedLog again;
  clock = [&, now = 0.]() mutable {
    if (again.text().find("@ iteration      2/") != std::string::npos) stop_signal() = 15;
    return now += 1;
  };
  EXPECT_EQ(run(), Outcome::kInterrupted);
  EXPECT_THAT(again.text(), HasSubstr("Profile of the iterations up to 2:"));
}

TEST_F(TrainerTest, SlowDataIsTold) {
  settings.data.batch_warn_ms = 1;
  settings.training.train_iters = 1;
  run(-1, "Training", 5);
  EXPECT_EQ(lines("Data loading took").size(), 1u);
}

// Two steps of two samples that take their time. Read in the step, they are waited for; read ahead,
// while the model is at work in the first step, those of the second are not.
TEST_F(TrainerTest, ShowsHowLongAStepWaitedForData) {
  constexpr int kSlowMs = 50, kSamples = 2;
  settings.training.train_iters = 2;
  settings.training.logs = Interval(1, 0);
  const auto waits = [&](int workers) {
    settings.training.num_workers = workers;
    Reads seen;
    bool all_came = true;
    WaitingModel waiting([&] {
      if (workers > 0) all_came = all_came && seen.wait_for(2 * kSamples);
    });
    RunDirectory experiment(folder.path() / fmt::format("experiment_{}", workers));
    TrainerParts parts{settings, waiting};
    parts.run = &experiment;
    parts.make_dataset = [&](const std::string&, int64_t samples) {
      return std::make_shared<Counting>(samples, -1, false, kSlowMs, seen);
    };
    EXPECT_EQ(Trainer(parts).run(), Outcome::kCompleted);
    EXPECT_TRUE(all_came) << "the loader does not read ahead";
    std::vector<double> found;
    std::istringstream metrics(read_file(experiment.metrics_file()));
    for (std::string line; std::getline(metrics, line);)
      found.push_back(config::parse_yaml(line, "metrics").get<double>("data_wait_ms"));
    return found;
  };
  const std::vector<double> in_step = waits(0), ahead = waits(2);
  ASSERT_EQ(in_step.size(), 2u);
  ASSERT_EQ(ahead.size(), 2u);
  for (double wait : in_step) EXPECT_GE(wait, kSlowMs * kSamples);
  EXPECT_GT(ahead[0], 0);
  EXPECT_LT(ahead[1], in_step[1]);
}

using Policy = DivergenceSettings::Policy;

TEST_F(TrainerTest, GoingOnWithWhatIsNoNumberIsToldOnceAndCounted) {
  settings.optimizer.learning_rate.base = 1e38;
  settings.training.divergence.policy = Policy::kContinue;
  settings.training.train_iters = 8;
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_EQ(lines("diverged").size(), 1u);
  EXPECT_THAT(lines("PhaseType.training @").back(), HasSubstr("nan iterations:   2"));
}

// The logits are the largest tensor of a step by far, and no layer reads them.
TEST_F(TrainerTest, LookingAtMemoryAndGradientsMakesNoOutputThatNobodyReads) {
  settings.tensor_logs.activation_memory = true;
  settings.tensor_logs.levels.layer_gradients = 3;
  settings.training.train_iters = 1;
  run();
  EXPECT_FALSE(model.logits_made);
  EXPECT_EQ(lines("head.loss: activations").size(), 4u);  // two micro-batches, output and gradient
  EXPECT_TRUE(lines("logits").empty());
  settings.tensor_logs.levels.layer_outputs = 3;
  run();
  EXPECT_TRUE(model.logits_made);
  EXPECT_EQ(lines("fw, mb=1/2: head.logits: [5, 11] float32").size(), 1u);
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
  EXPECT_TRUE(lines("diverged").empty());
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
  settings.optimizer.scaler = {.kind = optim::ScalerKind::kConstant, .constant = 256};
  run();
  std::vector<std::string> scaled = lines("PhaseType.training @");
  scaled.erase(scaled.begin(), scaled.begin() + std::ptrdiff_t(plain.size()));
  ASSERT_EQ(scaled.size(), plain.size());
  auto numbers = [](const std::string& line) {  // norm and losses
    const size_t norm = line.find("grad norm"), skipped = line.find("skipped");
    return line.substr(norm, skipped - norm) + line.substr(line.find("| loss: "));
  };
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(numbers(scaled[i]), numbers(plain[i]));
    EXPECT_THAT(scaled[i], HasSubstr("loss scale:   256"));
  }
}

TEST_F(TrainerTest, StopsBeforeTheUpdateAndNamesTheFirstOutputThatIsNoNumber) {
  model.poison = {3, false, 3, 3, 1};  // block_1, in the second micro-batch of step 3
  EXPECT_EQ(run(), Outcome::kDiverged);
  EXPECT_THAT(
      lines("diverged"),
      ElementsAre(HasSubstr("Iteration 3 diverged: loss is nan. The first that is not "
                            "finite: output hidden of layer block_1 (1 of 30 values, the "
                            "first nan at [0, 1]) in forward of micro-batch 1. Its update "
                            "is left out."),
                  HasSubstr("Stopped after iteration 2 since the next diverged; there is no "
                            "checkpoint to go on from, and its weights are untouched")));
  EXPECT_THAT(iterations("PhaseType.training @"), ElementsAre(2));
}

TEST_F(TrainerTest, NamesTheFirstGradientThatIsNoNumber) {
  model.poison = {2, true, 1, 1, 0};
  EXPECT_EQ(run(), Outcome::kDiverged);
  EXPECT_THAT(lines("diverged").at(0),
              HasSubstr("Iteration 1 diverged: the gradient norm is inf. The first that is not "
                        "finite: the gradient of block_0.weight of layer block_0 (1 of 36 values, "
                        "the first inf at [0, 2])."));
}

TEST_F(TrainerTest, SkippedUpdatesAreCountedAndLeftOutOfTheMeans) {
  settings.training.divergence.policy = Policy::kSkip;
  settings.training.train_iters = 6;
  settings.training.logs = Interval(3, 0);
  model.poison = {4, false, 2, 3, 0};
  EXPECT_EQ(run(), Outcome::kCompleted);
  const auto found = lines("PhaseType.training @");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0],
              HasSubstr("grad norm: nan | skipped iterations:   2 | nan iterations:   2"));
  EXPECT_THAT(found[0], HasSubstr("learning rate: nan"));
  EXPECT_THAT(found[0], Not(HasSubstr("loss: nan")));
  EXPECT_THAT(found[1], HasSubstr("skipped iterations:   0 | nan iterations:   0"));
  const auto told = lines("diverged");
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[0], HasSubstr("The first that is not finite: output gated of layer gate"));
  EXPECT_THAT(told[1], Not(HasSubstr("The first")));  // looked for once a row
}

// A skipped step is as if the weights had never seen it: the next equals that of a run without it.
TEST_F(TrainerTest, ASkippedUpdateChangesNothing) {
  settings.training.divergence.policy = Policy::kSkip;
  settings.training.train_iters = 1;
  settings.training.test_iters = 1;
  run();
  const std::string before = lines("PhaseType.test @").at(0);
  settings.training.train_iters = 2;
  model.poison = {3, false, 2, 2, 0};
  run();
  const std::string after = lines("PhaseType.test @").at(1);
  const auto loss = [](const std::string& line) { return line.substr(line.find("| loss: ")); };
  EXPECT_EQ(loss(after), loss(before));
}

TEST_F(TrainerTest, TooManySkippedInARowEndTheRun) {
  settings.training.divergence.policy = Policy::kSkip;
  settings.training.divergence.max_skipped = 3;
  settings.training.train_iters = 50;
  model.poison = {3, false, 4, 50, 0};
  EXPECT_EQ(run(), Outcome::kDiverged);
  EXPECT_EQ(lines("Its update is left out").size(), 3u);
  EXPECT_EQ(lines("Stopped after iteration 5").size(), 1u);  // 4 and 5 count as done without update
}

TEST_F(TrainerTest, ALossAboveItsLimitIsADivergence) {
  settings.training.divergence.loss_threshold = 0.1;
  EXPECT_EQ(run(), Outcome::kDiverged);
  EXPECT_THAT(lines("Iteration 1 diverged").at(0),
              HasSubstr("above training.divergence.loss_threshold (0.1). Its update is left out."));
}

TEST_F(TrainerTest, ALossAboveItsLimitMayBeAWarningAlone) {
  settings.training.divergence.loss_threshold = 0.1;
  settings.training.divergence.policy = Policy::kContinue;
  EXPECT_EQ(run(), Outcome::kCompleted);
  EXPECT_EQ(lines("(0.1). Its update takes place even so.").size(), 4u);
  EXPECT_TRUE(lines("Nothing is saved").empty());
}

TEST_F(TrainerTest, WithoutUpdatesNothingMoves) {
  settings.skip_step = true;
  settings.training.train_iters = 1;
  settings.training.test_iters = 1;
  run();
  settings.training.train_iters = 5;
  run();
  const auto found = lines("PhaseType.test @");
  const auto loss = [](const std::string& line) { return line.substr(line.find("| loss: ")); };
  EXPECT_EQ(loss(found.at(0)), loss(found.at(1)));
  EXPECT_THAT(lines("PhaseType.training @").back(),
              HasSubstr("grad norm: nan | skipped iterations:   0"));
}

TEST_F(TrainerTest, SaysHowFarItsStartIsInOrder) {
  settings.training.test_iters = 1;
  EXPECT_EQ(run(), Outcome::kCompleted);
  const std::string text = log.text();
  size_t at = 0;
  for (const char* line :
       {"Creating model...", "Total allocated:", "Preparing datasets...",
        "Initializing training state from scratch...", "done with setup ...",
        "After initial setup:  allocated ",
        "Initializing PhaseType.training data iterator from sample 0...", "Training ...",
        "PhaseType.training @", "Running test phase ...", "PhaseType.test @"}) {
    const size_t found = text.find(line, at);
    ASSERT_NE(found, std::string::npos) << line << " after\n" << text.substr(0, at);
    at = found + 1;
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
