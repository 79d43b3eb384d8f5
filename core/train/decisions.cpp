#include "core/train/decisions.hpp"

#include <utility>

#include "core/base/cancel.hpp"
#include "core/distributed/sums.hpp"

namespace fastllm::train {

Decider::Decider(const TrainingSettings& training, Clock clock, distributed::Communicator* world)
    : training_(training), clock_(std::move(clock)), world_(world) {
  last_log_ = last_save_ = clock_();
  for (const ValidationSet& set : training_.validation) last_validation_[set.name] = last_log_;
}

bool Decider::signalled() { return stop_requested(); }

Decisions Decider::decide(int64_t iteration) {
  const double now = clock_();
  const Interval& saves = training_.checkpoint.when;
  // One vote is enough.
  std::vector<double> votes{
      double(signalled()), double(training_.logs.due(iteration, now - last_log_)),
      double(saves.due(iteration, now - last_save_)),
      double(training_.wall_clock_limit && now >= *training_.wall_clock_limit)};
  const size_t first_set = votes.size();
  for (const ValidationSet& set : training_.validation)
    votes.push_back(set.when.due(iteration, now - last_validation_.at(set.name)));
  distributed::sum_over(world_, votes);
  const auto voted = [&votes](size_t i) { return votes[i] > 0; };

  Decisions d;
  d.last = iteration >= training_.train_iters;
  d.signal = voted(0);
  d.log = voted(1);
  if (d.log) last_log_ = now;
  for (size_t i = 0; i < training_.validation.size(); ++i) {
    const ValidationSet& set = training_.validation[i];
    const bool at_the_end = d.last && set.when.enabled();
    if (at_the_end || voted(first_set + i)) d.validate.push_back(&set);
  }
  if (!d.last) {
    d.shutdown = training_.shutdown.enabled(iteration);
    d.time_is_up = voted(3);
  }
  // A planned stop saves, interval or not; the end when there is an interval at all.
  d.save = d.stop_is_planned() || (d.last && saves.enabled()) || voted(2);
  return d;
}

void Decider::carried_out(const Decisions& decisions) {
  const double now = clock_();
  for (const ValidationSet* set : decisions.validate) last_validation_.at(set->name) = now;
  if (decisions.save) last_save_ = now;
}

}  // namespace fastllm::train
