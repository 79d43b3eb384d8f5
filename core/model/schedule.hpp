// The ordered steps of one training step (docs/compatibility.md). Made once, walked every step.
#pragma once

#include <vector>

namespace fastllm::model {

enum class Phase { kForward, kBackward };

struct Step {
  Phase phase;
  int stage;
  int micro_batch;  // bf * depth_first + df
  // The stage's weights must be put into their buffer first.
  bool restore_before = false;
  // The stage's gradient buffer is complete, or handed on, after this step;
  bool reduce_after = false;
  // and was reduced before in this iteration: add to the shard.
  bool reduce_accumulates = false;
};

struct ScheduleOptions {
  int stages = 1;
  int depth_first = 1, breadth_first = 1;
  bool training = true;  // false: forward steps only
  // By stage: the buffer it uses; empty: one each.
  std::vector<int> weight_buffer, gradient_buffer;
  // No backward below the lowest trainable stage; the number of stages: none at all.
  int lowest_backward_stage = 0;
};

std::vector<Step> make_schedule(const ScheduleOptions& options);

}  // namespace fastllm::model
