// The bytes that a rank sends in one training step, by group and operation: the same calls as a run
// makes, counted without making them. Of a step like all but the first, in which frozen weights that
// have a buffer to themselves are gathered once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/distributed/groups.hpp"
#include "core/distributed/traffic.hpp"
#include "core/plan/activations.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::plan {

struct TrafficLine {
  std::string group;         // "data": what the ranks of it share
  std::string communicator;  // that serves it: "world" where data ranks are all there are
  int ranks = 1;             // of the group
  distributed::Operation operation = distributed::Operation::kAllReduce;
  std::string what;  // "gradients"
  int64_t calls = 0, bytes = 0;
};
struct StepTraffic {
  std::vector<TrafficLine> lines;  // without those of no bytes
  int64_t first_step_bytes = 0;    // besides, of the first step
  int64_t bytes() const;
};
StepTraffic step_traffic(const train::Settings& settings, const Wires& wires,
                         const shard::StoreOptions& store, int rank,
                         const std::vector<model::Step>& schedule, const MicroBatch& micro_batch);

}  // namespace fastllm::plan
