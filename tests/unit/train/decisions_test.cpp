// What is decided after a step: by iteration, by time, at the end, on a planned stop and on a signal.
#include "core/train/decisions.hpp"

#include <gmock/gmock.h>

#include "core/base/cancel.hpp"

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DecisionsTest : public ::testing::Test {
 protected:
  DecisionsTest() {
    stop_signal() = 0;
    training.train_iters = 100;
  }
  ~DecisionsTest() override { stop_signal() = 0; }
  Decider make() {
    return Decider(training, [this] { return now; });
  }
  // Iterations for which it holds; each takes a second.
  std::vector<int> which(int last, bool (*holds)(const Decisions&)) {
    Decider decider = make();
    std::vector<int> found;
    for (int i = 1; i <= last; ++i) {
      ++now;
      const Decisions d = decider.decide(i);
      if (holds(d)) found.push_back(i);
      decider.carried_out(d);
    }
    return found;
  }
  static std::vector<std::string> names(const Decisions& d) {
    std::vector<std::string> found;
    for (const ValidationSet* set : d.validate) found.push_back(set->name);
    return found;
  }

  TrainingSettings training;
  double now = 0;
};

TEST_F(DecisionsTest, NothingIsDueByItself) {
  const Decisions d = make().decide(7);
  EXPECT_FALSE(d.last || d.log || d.save || d.stop_is_planned() || d.signal);
  EXPECT_THAT(d.validate, IsEmpty());
}

TEST_F(DecisionsTest, IntervalsCountIterationsOrSeconds) {
  training.logs = Interval(4, 1);
  training.checkpoint.when = Interval(std::nullopt, 0, 5.);
  EXPECT_THAT(which(12, [](const Decisions& d) { return d.log; }), ElementsAre(1, 5, 9));
  EXPECT_THAT(which(12, [](const Decisions& d) { return d.save; }), ElementsAre(5, 10));
}

TEST_F(DecisionsTest, TimeCountsFromTheEndOfWhatTookLong) {
  training.validation = {{"timed", Interval(std::nullopt, 0, 5.), 1}};
  Decider decider = make();
  now = 5;
  const Decisions first = decider.decide(1);
  EXPECT_THAT(names(first), ElementsAre("timed"));
  now = 30;  // it took 25 s
  decider.carried_out(first);
  now = 34;
  EXPECT_THAT(names(decider.decide(2)), IsEmpty());
  now = 35;
  EXPECT_THAT(names(decider.decide(3)), ElementsAre("timed"));
}

TEST_F(DecisionsTest, TheEndEvaluatesEverySetAndSavesWhereThereIsAnInterval) {
  training.validation = {
      {"", Interval(3, 0), 1}, {"off", Interval(), 1}, {"b", Interval(50, 0), 1}};
  training.shutdown = Interval(100, 0);
  training.wall_clock_limit = 0;
  Decider decider = make();
  EXPECT_THAT(names(decider.decide(51)), ElementsAre(""));
  Decisions d = decider.decide(100);
  EXPECT_TRUE(d.last);
  EXPECT_THAT(names(d), ElementsAre("", "b"));
  EXPECT_FALSE(d.stop_is_planned());  // it ends in any case
  EXPECT_FALSE(d.save);
  training.checkpoint.when = Interval(7, 0);
  EXPECT_TRUE(make().decide(100).save);
}

TEST_F(DecisionsTest, APlannedStopSaves) {
  training.shutdown = Interval(10, 0);
  Decisions d = make().decide(10);
  EXPECT_TRUE(d.shutdown && d.save);
  EXPECT_FALSE(d.time_is_up);
  training.wall_clock_limit = 60;
  now = 59.5;
  EXPECT_FALSE(make().decide(11).stop_is_planned());
  now = 60;
  d = make().decide(11);
  EXPECT_TRUE(d.time_is_up && d.save);
}

TEST_F(DecisionsTest, ASignalIsSeen) {
  EXPECT_FALSE(Decider::signalled());
  stop_signal() = 15;
  EXPECT_TRUE(Decider::signalled());
  EXPECT_TRUE(make().decide(1).signal);
}

}  // namespace
}  // namespace fastllm::train
