// The steps of every kind of rank, and how long they take together. Ranks of one pipeline rank do
// the same, and hold equally much: they are one kind.
#pragma once

#include <vector>

#include "core/model/schedule.hpp"
#include "core/shard/store.hpp"

namespace fastllm::plan {

struct RankKind {
  int pipeline_rank = 0;
  int first = 0;           // one of them
  std::vector<int> ranks;  // ascending
};
std::vector<RankKind> rank_kinds(const shard::World& world);

// The same as of a run, from the layout alone.
model::ScheduleOptions schedule_options(const shard::Layout& layout, int rank,
                                        const shard::StoreOptions& store, int depth_first,
                                        int breadth_first);

// How long a stage computes for one micro-batch, and its message is under way to another rank.
struct StageTime {
  double forward = 0, backward = 0;
  double forward_message = 0, backward_message = 0;
};
// From the first step to the end of the last one; schedules: of all pipeline ranks.
double duration(const std::vector<std::vector<model::Step>>& schedules,
                const std::vector<StageTime>& stages);

}  // namespace fastllm::plan
