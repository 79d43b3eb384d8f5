// The step list of all ranks, when each step runs if all take equally long, and the marks of one
// rank (docs/compatibility.md): weights and gradients follow from walking its steps once with the
// stage that each buffer holds at that moment, receives from the times.
#include "core/model/schedule.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace fastllm::model {
namespace {

std::vector<Step> list_steps(const ScheduleOptions& o) {
  std::vector<Step> steps;
  auto add = [&](Phase phase, int stage, int depth) {
    for (int breadth = 0; breadth < o.breadth_first; ++breadth) {
      Step step;
      step.phase = phase;
      step.stage = stage;
      step.micro_batch = breadth * o.depth_first + depth;
      step.index = int(steps.size());
      steps.push_back(step);
    }
  };
  for (int depth = 0; depth < o.depth_first; ++depth) {
    for (int stage = 0; stage < o.stages; ++stage) add(Phase::kForward, stage, depth);
    if (!o.training) continue;
    for (int stage = o.stages - 1; stage >= std::max(0, o.lowest_backward_stage); --stage)
      add(Phase::kBackward, stage, depth);
  }
  return steps;
}

// The way of each micro-batch through the stages and back, and the order of each rank.
class Plan {
 public:
  explicit Plan(const ScheduleOptions& options) : o_(options), steps(list_steps(options)) {
    link();
    set_times();
  }

  int rank_of(const Step& step) const { return step.stage % o_.pipeline; }
  // Forward, then backward.
  int position(const Step& step) const {
    return step.phase == Phase::kForward ? step.stage : 2 * o_.stages - 1 - step.stage;
  }

  const ScheduleOptions& o_;
  std::vector<Step> steps;
  std::vector<int> next;                // by step: the one that takes what it makes; -1: none
  std::vector<int> previous;            // by step: the one that makes what it takes; -1: none
  std::vector<std::vector<int>> ranks;  // steps by rank, in order

 private:
  void link() {
    next.assign(steps.size(), -1);
    previous.assign(steps.size(), -1);
    ranks.resize(size_t(o_.pipeline));
    std::vector<int> last(size_t(o_.depth_first) * size_t(o_.breadth_first), -1);  // by micro-batch
    for (Step& step : steps) {
      int& before = last[size_t(step.micro_batch)];
      previous[size_t(step.index)] = before;
      if (before >= 0) {
        next[size_t(before)] = step.index;
        Step& source = steps[size_t(before)];
        if (rank_of(source) != rank_of(step)) {
          source.to = rank_of(step);
          step.from = rank_of(source);
        }
      }
      before = step.index;
      ranks[size_t(rank_of(step))].push_back(step.index);
    }
  }

  // A step begins when the one before it on its rank and the one that it takes from have ended.
  void set_times() {
    std::vector<char> timed(steps.size(), 0);
    std::vector<size_t> at(ranks.size(), 0);
    std::vector<int64_t> free(ranks.size(), 0);
    for (size_t left = steps.size(); left > 0;) {
      const size_t before = left;
      for (size_t r = 0; r < ranks.size(); ++r) {
        for (; at[r] < ranks[r].size(); ++at[r], --left) {
          Step& step = steps[size_t(ranks[r][at[r]])];
          const int source = previous[size_t(step.index)];
          if (source >= 0 && !timed[size_t(source)]) break;
          step.begin = std::max(free[r], source < 0 ? 0 : steps[size_t(source)].begin + 1);
          free[r] = step.begin + 1;
          timed[size_t(step.index)] = 1;
        }
      }
      FASTLLM_ASSERT(left < before);  // each rank would wait for another
    }
  }
};

// Where a rank's steps begin to receive. Not before the sender is through by the clock of equal
// steps, so that what is received does not lie in memory longer than it must; and at a step that
// runs at the same time only where that does not keep a message of its own waiting.
class Receives {
 public:
  Receives(const Plan& plan, int rank)
      : plan_(plan), own_(plan.ranks[size_t(rank)]), position_(plan.steps.size(), -1) {
    for (size_t k = 0; k < own_.size(); ++k) position_[size_t(own_[k])] = int(k);
  }

  void mark(std::vector<Step>& steps) const {
    for (const Step& sender : plan_.steps) {
      const int consumer = plan_.next[size_t(sender.index)];
      if (consumer < 0 || position_[size_t(consumer)] < 0 || sender.to < 0) continue;
      const int launch = launch_of(sender);
      FASTLLM_ASSERT(launch <= position_[size_t(consumer)]);
      steps[size_t(launch)].receives.push_back(position_[size_t(consumer)]);
    }
  }

 private:
  int launch_of(const Step& sender) const {
    const auto found = std::lower_bound(
        own_.begin(), own_.end(), sender.begin,
        [&](int step, int64_t begin) { return plan_.steps[size_t(step)].begin < begin; });
    FASTLLM_ASSERT(found != own_.end());
    const int launch = int(found - own_.begin());
    const Step& step = plan_.steps[size_t(*found)];
    const bool also_sends = step.begin == sender.begin && step.to >= 0;
    return also_sends && plan_.position(step) < plan_.position(sender) ? launch + 1 : launch;
  }

  const Plan& plan_;
  const std::vector<int>& own_;
  std::vector<int> position_;  // by step: in own_; -1: another rank's
};

// A stage's weights must come into its buffer when the buffer last held another stage, or nothing
// yet.
void mark_restores(std::vector<Step>& steps, const std::vector<int>& buffer_of) {
  std::vector<int> held(buffer_of.size(),
                        -1);  // stage by buffer; there are at most as many buffers as stages
  for (Step& step : steps) {
    int& current = held[buffer_of[step.stage]];
    step.restore_before = current != step.stage;
    current = step.stage;
  }
}

// A gradient buffer is handed on when a backward step of another stage needs it, or at the end.
void mark_reductions(std::vector<Step>& steps, const std::vector<int>& buffer_of) {
  std::vector<Step*> last(buffer_of.size(), nullptr);  // latest backward step by buffer
  std::vector<char> reduced(buffer_of.size(), 0);      // by stage
  auto reduce = [&](Step* step) {
    step->reduce_after = true;
    step->reduce_accumulates = reduced[step->stage];
    reduced[step->stage] = 1;
  };
  for (Step& step : steps) {
    if (step.phase != Phase::kBackward) continue;
    Step*& previous = last[buffer_of[step.stage]];
    if (previous && previous->stage != step.stage) reduce(previous);
    previous = &step;
  }
  for (Step* step : last)
    if (step) reduce(step);
}

std::vector<int> checked_buffers(std::vector<int> buffers, const ScheduleOptions& o) {
  if (buffers.empty())
    for (int stage = 0; stage < o.stages; ++stage) buffers.push_back(stage);
  FASTLLM_ASSERT(int(buffers.size()) == o.stages);
  for (int stage = o.pipeline_rank; stage < o.stages; stage += o.pipeline)
    FASTLLM_ASSERT(buffers[size_t(stage)] >= 0 && buffers[size_t(stage)] < o.stages);
  return buffers;
}

void check(const ScheduleOptions& o) {
  FASTLLM_ASSERT(o.stages > 0 && o.depth_first > 0 && o.breadth_first > 0);
  FASTLLM_ASSERT(o.pipeline > 0 && o.pipeline <= o.stages && o.pipeline_rank >= 0 &&
                 o.pipeline_rank < o.pipeline);
}

}  // namespace

std::vector<Step> make_schedule(const ScheduleOptions& options) {
  check(options);
  const Plan plan(options);
  std::vector<Step> steps;
  for (int index : plan.ranks[size_t(options.pipeline_rank)])
    steps.push_back(plan.steps[size_t(index)]);
  Receives(plan, options.pipeline_rank).mark(steps);
  mark_restores(steps, checked_buffers(options.weight_buffer, options));
  mark_reductions(steps, checked_buffers(options.gradient_buffer, options));
  return steps;
}

double bubble_share(const ScheduleOptions& options) {
  check(options);
  const Plan plan(options);
  int64_t end = 0;
  for (const Step& step : plan.steps) end = std::max(end, step.begin + 1);
  return 1 - double(plan.steps.size()) / double(end * options.pipeline);
}

}  // namespace fastllm::model
