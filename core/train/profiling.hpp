// Which steps are profiled, and where the results go (docs/users/training.md): skip iterations,
// then cycles of wait, warmup and kept ones. Also the times of the steps of a schedule
// (schedule.profile_schedule), which every training iteration gives. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/profile.hpp"
#include "core/model/schedule.hpp"
#include "core/train/metrics/run_directory.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

class Profiling {
 public:
  // run: null: what is no log is discarded.
  Profiling(const Settings& settings, RunDirectory* run);
  ~Profiling();
  Profiling(const Profiling&) = delete;

  // Around everything an iteration does. i: the iteration; n: counted from the start of this run,
  // from 1.
  void begin(int64_t n);
  void end(int64_t i, int64_t n, const std::vector<model::Step>& schedule);
  // After the last iteration i: a cycle that did not come to its end is written, too.
  void finish(int64_t i);

  // For tests: whether the n-th iteration is kept, and whether it is the last of its cycle.
  bool keeps(int64_t n) const;
  bool ends_cycle(int64_t n) const;

 private:
  void write(int64_t i);

  const ProfilingSettings& settings_;
  const int rank_;
  const bool active_, schedules_;  // schedules_: profile_schedule
  RunDirectory* run_;
  // Of this cycle so far. Recording goes on from one iteration to the next: worker threads keep their
  // numbers, and what they began in one and end in another is there.
  std::vector<profile::Event> events_;
  bool in_cycle_ = false;
};

// The text of schedule_profile_rank_*: when each step of the schedule began and ended, counted from
// where the iteration of the main thread began.
std::string schedule_profile(const std::vector<profile::Event>& events,
                             const std::vector<model::Step>& schedule, int64_t iteration, int rank);
// One line a step, for schedule.debug_schedule.
std::string schedule_text(const std::vector<model::Step>& schedule);

}  // namespace fastllm::train
