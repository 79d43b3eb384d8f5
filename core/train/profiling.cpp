#include "core/train/profiling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <tuple>

#include "core/base/file.hpp"
#include "core/base/log.hpp"

namespace fastllm::train {
namespace {

bool is_active(const ProfilingSettings& s, int rank) {
  const bool chosen =
      s.ranks.empty() || std::find(s.ranks.begin(), s.ranks.end(), rank) != s.ranks.end();
  return s.cpu && (s.averages || s.trace || s.chrome) && chosen;
}

const char* phase_text(model::Phase phase) {
  return phase == model::Phase::kForward ? "forward" : "backward";
}

}  // namespace

Profiling::Profiling(const Settings& settings, RunDirectory* run)
    : settings_(settings.profiling),
      rank_(int(settings.distributed.rank)),
      active_(is_active(settings.profiling, rank_)),
      schedules_(settings.profile_schedule),
      run_(run) {}

Profiling::~Profiling() {
  if (profile::recording) profile::stop();
}

bool Profiling::keeps(int64_t n) const {
  if (!active_ || n <= settings_.skip) return false;
  const int64_t lead = settings_.wait + settings_.warmup;
  return (n - 1 - settings_.skip) % (lead + settings_.cycles) >= lead;
}

bool Profiling::ends_cycle(int64_t n) const {
  const int64_t length = settings_.wait + settings_.warmup + settings_.cycles;
  return keeps(n) && (n - settings_.skip) % length == 0;
}

void Profiling::begin(int64_t n) {
  if ((keeps(n) || schedules_) && !profile::recording) profile::start();
}

void Profiling::end(int64_t i, int64_t n, const std::vector<model::Step>& schedule) {
  if (!keeps(n) && !schedules_) return;
  in_cycle_ = keeps(n) && !ends_cycle(n);
  std::vector<profile::Event> events = in_cycle_ || schedules_ ? profile::take() : profile::stop();
  if (schedules_ && run_) {
    run_->write_artifact(
        fmt::format("schedule_profile_rank_{}_PhaseType.training_step_{}", rank_, i),
        schedule_profile(events, schedule, i, rank_));
  }
  if (!keeps(n)) return;
  std::move(events.begin(), events.end(), std::back_inserter(events_));
  if (ends_cycle(n)) write(i);
}

void Profiling::finish(int64_t i) {
  if (!profile::recording) return;
  std::vector<profile::Event> events = profile::stop();
  if (!in_cycle_) return;
  std::move(events.begin(), events.end(), std::back_inserter(events_));
  write(i);
}

void Profiling::write(int64_t i) {
  int64_t first = std::numeric_limits<int64_t>::max();  // recording may have begun long before
  for (const profile::Event& e : events_) first = std::min(first, e.begin_ns);
  for (profile::Event& e : events_) e.begin_ns -= first;
  std::stable_sort(events_.begin(), events_.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.thread, a.begin_ns, -a.duration_ns) <
           std::tuple(b.thread, b.begin_ns, -b.duration_ns);
  });
  auto table = [&](const std::string& name, const std::string& text) {
    if (settings_.log)
      log::info(fmt::format("Profile of the iterations up to {}:\n{}", i, text));
    else if (run_)
      run_->write_artifact(fmt::format("{}_step_{}", name, i), text);
  };
  if (settings_.averages)
    table("profile_averages", profile::averages_table(events_, settings_.table_width));
  if (settings_.trace) table("profile_trace", profile::event_table(events_, settings_.table_width));
  if (settings_.chrome && run_) {
    run_->write_artifact(fmt::format("profile_chrome_step_{}", i),
                         profile::chrome_trace(events_, rank_));
  }
  events_.clear();
  in_cycle_ = false;
}

std::string schedule_profile(const std::vector<profile::Event>& events,
                             const std::vector<model::Step>& schedule, int64_t iteration,
                             int rank) {
  std::string text =
      fmt::format("iteration: {}\nphase: PhaseType.training\nrank: {}\nevents:\n", iteration, rank);
  int64_t origin = 0;
  for (const profile::Event& e : events)
    if (e.thread == 0 && std::strcmp(e.category, "iteration") == 0) origin = e.begin_ns;
  for (const profile::Event& e : events) {
    const bool step = std::strcmp(e.category, "run") == 0;
    const bool other =
        std::strcmp(e.category, "restore") == 0 || std::strcmp(e.category, "reduce") == 0 ||
        std::strcmp(e.category, "optimizer") == 0 || std::strcmp(e.category, "wait") == 0;
    if (e.thread != 0 || (!step && !other)) continue;
    // Seconds since the iteration began; the beginning of what is named, and how long it took.
    text +=
        fmt::format("- event_type: {}\n  stream: compute\n  cpu_time: {:.9f}\n  duration: {:.9f}\n",
                    step ? "run" : e.category, double(e.begin_ns - origin) * 1e-9,
                    double(e.duration_ns) * 1e-9);
    if (!step || e.number < 0 || e.number >= int64_t(schedule.size())) continue;
    const model::Step& s = schedule[size_t(e.number)];
    text +=
        fmt::format("  step_idx: {}\n  step_type: {}\n  step_stage: {}\n  step_micro_batch: {}\n",
                    e.number, phase_text(s.phase), s.stage, s.micro_batch);
  }
  return text;
}

std::string schedule_text(const std::vector<model::Step>& schedule) {
  std::string text;
  for (size_t s = 0; s < schedule.size(); ++s) {
    const model::Step& step = schedule[s];
    text +=
        fmt::format("{:5}  {:<8}  stage {:4}  micro-batch {:4}{}{}\n", s, phase_text(step.phase),
                    step.stage, step.micro_batch, step.restore_before ? "  restore before" : "",
                    !step.reduce_after        ? ""
                    : step.reduce_accumulates ? "  add to the gradients after"
                                              : "  reduce the gradients after");
  }
  return text;
}

}  // namespace fastllm::train
