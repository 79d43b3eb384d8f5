// The arithmetic of core/plan/time.hpp, of a plan that has all else.
#pragma once

#include "core/plan/plan.hpp"

namespace fastllm::plan {

struct TimeQuestion {
  const Plan& plan;
  const Hardware& hardware;
  const shard::StoreOptions& store;
  const std::vector<std::vector<model::Step>>& schedules;  // by pipeline rank
  const std::vector<StageTime>& stages;  // operations of a rank instead of seconds, and bytes
};
// Bytes that a step moves besides its layers: the optimizer's, and those between the shards and the
// buffers, where weights are read in float32 and written in their type, gradients the other way.
double memory_bytes(const StateMemory& memory, const shard::StoreOptions& store);

StepTime step_time(const TimeQuestion& question);

}  // namespace fastllm::plan
