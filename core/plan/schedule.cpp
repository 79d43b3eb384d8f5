#include "core/plan/schedule.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/error.hpp"

namespace fastllm::plan {

using model::Phase;
using model::Step;

std::vector<RankKind> rank_kinds(const shard::World& world) {
  std::vector<RankKind> kinds(static_cast<size_t>(world.pipeline));
  for (int rank = 0; rank < world.size(); ++rank)
    kinds[size_t(world.pipeline_rank(rank))].ranks.push_back(rank);
  for (int p = 0; p < world.pipeline; ++p) {
    kinds[size_t(p)].pipeline_rank = p;
    kinds[size_t(p)].first = kinds[size_t(p)].ranks.front();
  }
  return kinds;
}

model::ScheduleOptions schedule_options(const shard::Layout& layout, int rank,
                                        const shard::StoreOptions& store, int depth_first,
                                        int breadth_first) {
  model::ScheduleOptions options;
  options.stages = int(layout.stages().size());
  options.depth_first = depth_first;
  options.breadth_first = breadth_first;
  options.pipeline = layout.world().pipeline;
  options.pipeline_rank = layout.world().pipeline_rank(rank);
  options.lowest_backward_stage = layout.lowest_trainable_stage();
  const shard::BufferPlacement weights = shard::weight_placement(layout, rank, store);
  const shard::BufferPlacement gradients = shard::gradient_placement(layout, rank, store);
  for (int stage = 0; stage < options.stages; ++stage) {
    options.weight_buffer.push_back(weights.buffer_of(stage));
    options.gradient_buffer.push_back(gradients.buffer_of(stage));
  }
  return options;
}

double duration(const std::vector<std::vector<Step>>& schedules,
                const std::vector<StageTime>& stages) {
  std::vector<std::pair<const Step*, size_t>> all;  // a step, and the rank that does it
  for (size_t r = 0; r < schedules.size(); ++r)
    for (const Step& step : schedules[r]) all.emplace_back(&step, r);
  // In the order of the clock of equal steps, what a step waits for comes before it.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.first->begin, a.first->index) < std::tuple(b.first->begin, b.first->index);
  });
  std::vector<double> free(schedules.size(), 0);
  std::map<int, double> arrived;  // by micro-batch: what its next step works on
  double end = 0;
  for (const auto& [step, rank] : all) {
    const StageTime& stage = stages[size_t(step->stage)];
    const bool forward = step->phase == Phase::kForward;
    double& input = arrived[step->micro_batch];
    free[rank] = std::max(free[rank], input) + (forward ? stage.forward : stage.backward);
    const double message = forward ? stage.forward_message : stage.backward_message;
    input = free[rank] + (step->to >= 0 ? message : 0);
    end = std::max(end, free[rank]);
  }
  return end;
}

}  // namespace fastllm::plan
