// The step list and its marks (docs/compatibility.md), for one rank that owns every stage.
// Marks follow from walking the steps once with the stage that each buffer holds at that moment.
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

std::vector<int> checked_buffers(std::vector<int> buffers, int stages) {
  if (buffers.empty())
    for (int stage = 0; stage < stages; ++stage) buffers.push_back(stage);
  FASTLLM_ASSERT(int(buffers.size()) == stages);
  for (int buffer : buffers) FASTLLM_ASSERT(buffer >= 0 && buffer < stages);
  return buffers;
}

}  // namespace

std::vector<Step> make_schedule(const ScheduleOptions& options) {
  FASTLLM_ASSERT(options.stages > 0 && options.depth_first > 0 && options.breadth_first > 0);
  std::vector<Step> steps = list_steps(options);
  mark_restores(steps, checked_buffers(options.weight_buffer, options.stages));
  mark_reductions(steps, checked_buffers(options.gradient_buffer, options.stages));
  return steps;
}

}  // namespace fastllm::model
