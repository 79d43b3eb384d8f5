// Which iterations are kept, how spans nest in a trace, and that nothing is kept when off.
#include "core/train/profiling.hpp"

#include <gmock/gmock.h>

#include <barrier>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "core/base/file.hpp"
#include "core/config/node.hpp"

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Settings profiled(int64_t skip, int64_t wait, int64_t warmup, int64_t cycles) {
  Settings settings;
  ProfilingSettings& p = settings.profiling;
  p.cpu = true;
  p.skip = skip;
  p.wait = wait;
  p.warmup = warmup;
  p.cycles = cycles;
  p.averages = true;
  return settings;
}

std::vector<int> kept(const Settings& settings, bool last_ones = false) {
  Profiling profiling(settings, nullptr);
  std::vector<int> found;
  for (int n = 1; n <= 12; ++n)
    if (last_ones ? profiling.ends_cycle(n) : profiling.keeps(n)) found.push_back(n);
  return found;
}

TEST(Profiling, KeepsCyclesAfterWaitAndWarmup) {
  EXPECT_THAT(kept(profiled(1, 0, 1, 1)), ElementsAre(3, 5, 7, 9, 11));
  EXPECT_THAT(kept(profiled(2, 1, 1, 2)), ElementsAre(5, 6, 9, 10));
  EXPECT_THAT(kept(profiled(2, 1, 1, 2), true), ElementsAre(6, 10));
  EXPECT_THAT(kept(profiled(0, 0, 0, 5), true), ElementsAre(5, 10));
}

TEST(Profiling, IsOffWithoutAnActivityAnOutputOrThisRank) {
  Settings settings = profiled(0, 0, 0, 1);
  EXPECT_EQ(kept(settings).size(), 12u);
  settings.profiling.ranks = {1, 2};
  EXPECT_THAT(kept(settings), IsEmpty());
  settings.profiling.ranks = {0};
  EXPECT_EQ(kept(settings).size(), 12u);
  settings.profiling.averages = false;
  EXPECT_THAT(kept(settings), IsEmpty());
  settings = profiled(0, 0, 0, 1);
  settings.profiling.cpu = false;
  EXPECT_THAT(kept(settings), IsEmpty());
}

// A cycle of two iterations with two workers, each with a span an iteration, in changing order, and
// one that begins in the first and ends in the second.
TEST(Profiling, ACycleIsOneRecording) {
  const TemporaryDirectory folder;
  RunDirectory run(folder.path());
  Settings settings = profiled(0, 0, 0, 2);
  settings.profiling.chrome = true;
  Profiling profiling(settings, &run);
  std::barrier step(3);
  std::thread a([&] {
    step.arrive_and_wait();  // first iteration, a before b
    { const profile::Span span("data", "a"); }
    step.arrive_and_wait();
    {
      const profile::Span span("data", "across");
      step.arrive_and_wait();  // in the second iteration
    }
    step.arrive_and_wait();
    { const profile::Span span("data", "a"); }
    step.arrive_and_wait();
  });
  std::thread b([&] {
    step.arrive_and_wait();
    step.arrive_and_wait();
    { const profile::Span span("data", "b"); }
    step.arrive_and_wait();
    { const profile::Span span("data", "b"); }
    step.arrive_and_wait();
    step.arrive_and_wait();
  });
  profiling.begin(1);
  step.arrive_and_wait();
  step.arrive_and_wait();
  profiling.end(1, 1, {});
  profiling.begin(2);
  step.arrive_and_wait();
  step.arrive_and_wait();
  step.arrive_and_wait();
  a.join();
  b.join();
  profiling.end(2, 2, {});
  const config::Node trace =
      config::parse_json(read_file(run.run() / "artifacts/0/profile_chrome_step_2"), "trace");
  std::map<std::string, std::multiset<int64_t>> threads;  // by span
  const config::Node& events = *trace.find("traceEvents");
  for (size_t i = 0; i < events.size(); ++i)
    if (events.at(i).get<std::string>("ph") == "X")
      threads[events.at(i).get<std::string>("name")].insert(events.at(i).get<int64_t>("tid"));
  EXPECT_EQ(threads["a"], (std::multiset<int64_t>{1, 1}));
  EXPECT_EQ(threads["b"], (std::multiset<int64_t>{2, 2}));
  EXPECT_EQ(threads["across"], (std::multiset<int64_t>{1}));
}

TEST(Profiling, TheStepsOfAScheduleCountFromTheirIteration) {
  const TemporaryDirectory folder;
  RunDirectory run(folder.path());
  Settings settings;
  settings.profile_schedule = true;
  Profiling profiling(settings, &run);
  for (int i = 1; i <= 2; ++i) {
    profiling.begin(i);
    {
      const profile::Span iteration("iteration", "training", i);
      if (i == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const profile::Span step("run", "forward", 0, 0);
    }
    profiling.end(i, i, {{model::Phase::kForward, 0, 0}});
  }
  profiling.finish(2);
  const config::Node second = config::parse_yaml(
      read_file(run.run() / "artifacts/0/schedule_profile_rank_0_PhaseType.training_step_2"), "x");
  ASSERT_EQ(second.find("events")->size(), 1u);
  EXPECT_GE(second.get<double>("events.0.cpu_time"), 0);
  EXPECT_LT(second.get<double>("events.0.cpu_time"), 0.02);  // the first one took longer
}

TEST(Profile, KeepsNothingWhileOff) {
  { const profile::Span span("run", "before"); }
  profile::start();
  std::vector<profile::Event> events = profile::stop();
  EXPECT_THAT(events, IsEmpty());
}

TEST(Profile, SpansNestByThread) {
  profile::start();
  {
    const profile::Span outer("iteration", "training", 7);
    { const profile::Span inner("forward", "block", 2, 1); }
    std::thread([] { const profile::Span other("data", "batch"); }).join();
  }
  const std::vector<profile::Event> events = profile::stop();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "training");
  EXPECT_EQ(events[1].name, "block");
  EXPECT_EQ(events[1].micro_batch, 1);
  EXPECT_EQ(events[1].thread, 0);
  EXPECT_EQ(events[2].thread, 1);
  EXPECT_LE(events[0].begin_ns, events[1].begin_ns);
  EXPECT_GE(events[0].begin_ns + events[0].duration_ns, events[1].begin_ns + events[1].duration_ns);

  const config::Node trace = config::parse_json(profile::chrome_trace(events, 3), "trace");
  const config::Node& list = *trace.find("traceEvents");
  ASSERT_EQ(list.size(), 5u);  // two names of threads first
  EXPECT_EQ(list.get<std::string>("0.ph"), "M");
  EXPECT_EQ(list.get<std::string>("3.ph"), "X");
  EXPECT_EQ(list.get<std::string>("3.name"), "block");
  EXPECT_EQ(list.get<int64_t>("3.pid"), 3);
  EXPECT_EQ(list.get<int64_t>("3.args.micro_batch"), 1);
  EXPECT_EQ(list.get<int64_t>("4.tid"), 1);
}

TEST(Profile, TablesTellOwnTimeFromTheTimeOfAllInside) {
  const std::vector<profile::Event> events = {{"iteration", "training", -1, -1, 0, 10'000'000, 0},
                                              {"forward", "a", 0, 0, 1'000'000, 4'000'000, 0},
                                              {"restore", "w", 0, -1, 2'000'000, 1'000'000, 0},
                                              {"forward", "a", 0, 1, 6'000'000, 2'000'000, 0}};
  const std::string table = profile::averages_table(events, 80);
  EXPECT_THAT(table, HasSubstr("forward a                            2       5.000    50.00       "
                               "6.000    3.000\n"));
  EXPECT_THAT(table, HasSubstr("iteration training                   1       4.000    40.00      "
                               "10.000   10.000\n"));
  EXPECT_LT(table.find("forward a"), table.find("iteration training"));
  const std::string lines = profile::event_table(events, 60);
  EXPECT_THAT(lines, HasSubstr("restore w"));
  EXPECT_EQ(profile::chrome_trace({}, 0), "{\"displayTimeUnit\": \"ms\", \"traceEvents\": []}\n");
}

TEST(Profile, ASchedulesStepsHaveTheirTimes) {
  const std::vector<model::Step> schedule = {
      {.phase = model::Phase::kForward, .stage = 0, .micro_batch = 0, .restore_before = true},
      {.phase = model::Phase::kBackward, .stage = 0, .micro_batch = 0, .reduce_after = true}};
  const std::string text = schedule_profile({{"iteration", "training", 4, -1, 0, 9000, 0},
                                             {"wait", "data", -1, -1, 100, 50, 0},
                                             {"run", "forward", 0, 0, 1000, 2000, 0},
                                             {"run", "backward", 1, 0, 4000, 2500, 0}},
                                            schedule, 4, 0);
  const config::Node node = config::parse_yaml(text, "profile");
  EXPECT_EQ(node.get<int64_t>("iteration"), 4);
  EXPECT_EQ(node.find("events")->size(), 3u);
  EXPECT_EQ(node.get<std::string>("events.0.event_type"), "wait");
  EXPECT_EQ(node.get<std::string>("events.2.step_type"), "backward");
  EXPECT_EQ(node.get<int64_t>("events.2.step_idx"), 1);
  EXPECT_NEAR(node.get<double>("events.2.cpu_time"), 4e-6, 1e-12);
  EXPECT_EQ(schedule_text(schedule),
            "    0  forward   stage    0  micro-batch    0  restore before\n"
            "    1  backward  stage    0  micro-batch    0  reduce the gradients after\n");
}

}  // namespace
}  // namespace fastllm::train
