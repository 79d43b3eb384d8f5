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
StepTime step_time(const TimeQuestion& question);

}  // namespace fastllm::plan
