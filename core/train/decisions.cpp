#include "core/train/decisions.hpp"

#include <utility>

#include "core/base/cancel.hpp"

namespace fastllm::train {

Decider::Decider(const TrainingSettings& training, Clock clock)
    : training_(training), clock_(std::move(clock)) {
  last_log_ = last_save_ = clock_();
  for (const ValidationSet& set : training_.validation) last_validation_[set.name] = last_log_;
}

bool Decider::signalled() { return stop_requested(); }

Decisions Decider::decide(int64_t iteration) {
  const double now = clock_();
  Decisions d;
  d.last = iteration >= training_.train_iters;
  d.signal = signalled();
  d.log = training_.logs.due(iteration, now - last_log_);
  if (d.log) last_log_ = now;
  for (const ValidationSet& set : training_.validation) {
    const bool at_the_end = d.last && set.when.enabled();
    if (at_the_end || set.when.due(iteration, now - last_validation_.at(set.name)))
      d.validate.push_back(&set);
  }
  if (!d.last) {
    d.shutdown = training_.shutdown.enabled(iteration);
    d.time_is_up = training_.wall_clock_limit && now >= *training_.wall_clock_limit;
  }
  // A planned stop saves, interval or not; the end when there is an interval at all.
  const Interval& saves = training_.checkpoint.when;
  d.save =
      d.stop_is_planned() || (d.last && saves.enabled()) || saves.due(iteration, now - last_save_);
  return d;
}

void Decider::carried_out(const Decisions& decisions) {
  const double now = clock_();
  for (const ValidationSet* set : decisions.validate) last_validation_.at(set->name) = now;
  if (decisions.save) last_save_ = now;
}

}  // namespace fastllm::train
