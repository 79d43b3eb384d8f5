// The ordered steps of one training step (docs/compatibility.md). Made once, walked every step.
#pragma once

#include <cstdint>
#include <vector>

namespace fastllm::model {

enum class Phase { kForward, kBackward };

struct Step {
  Phase phase;
  int stage;
  int micro_batch;  // bf * depth_first + df
  int index = 0;    // among the steps of all pipeline ranks
  // When it begins, if every step takes one unit of time and messages take none.
  int64_t begin = 0;
  // The stage's weights must be put into their buffer first.
  bool restore_before = false;
  // The stage's gradient buffer is complete, or handed on, after this step;
  bool reduce_after = false;
  // and was reduced before in this iteration: add to the shard.
  bool reduce_accumulates = false;
  // Pipeline rank that what it makes is sent to, and that what it works on comes from; -1: nothing
  // crosses ranks.
  int to = -1, from = -1;
  // Steps of this rank, by position in its list, whose receives begin before this one.
  std::vector<int> receives = {};
};

struct ScheduleOptions {
  int stages = 1;
  int depth_first = 1, breadth_first = 1;
  bool training = true;  // false: forward steps only
  // Stage s is of pipeline rank s mod pipeline.
  int pipeline = 1, pipeline_rank = 0;
  // By stage: the buffer of this rank that it uses, any number where the stage is not here; empty:
  // one each.
  std::vector<int> weight_buffer, gradient_buffer;
  // No backward below the lowest trainable stage; the number of stages: none at all.
  int lowest_backward_stage = 0;
};

// The steps of one pipeline rank, in order.
std::vector<Step> make_schedule(const ScheduleOptions& options);

// Share of the time in which a pipeline rank has nothing to do, the mean over ranks, when every step
// takes equally long.
double bubble_share(const ScheduleOptions& options);

}  // namespace fastllm::model
