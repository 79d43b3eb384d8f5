#include "core/plan/time.hpp"

#include <algorithm>
#include <cmath>

#include "core/plan/step_time.hpp"

namespace fastllm::plan {

using distributed::GroupKind;
using distributed::Operation;

namespace {

// The optimizer reads a gradient for the norm, then four numbers of which it writes three.
constexpr double kOptimizerBytes = 4 + 4 * 4 + 3 * 4;

// Seconds for the lines that a predicate takes; nullopt when a bandwidth is missing.
template <class Takes>
std::optional<double> sending(const KindPlan& kind, const shard::World& world,
                              const Hardware& hardware, Takes&& takes) {
  double seconds = 0;
  for (const TrafficLine& line : kind.traffic.lines) {
    if (!takes(line)) continue;
    const auto group = distributed::group_of_name(line.group);
    const auto bandwidth = hardware.bandwidth(world, group.value_or(GroupKind::kPipeline));
    if (!bandwidth) return std::nullopt;
    seconds += double(line.bytes) / *bandwidth;
  }
  return seconds;
}

bool is_shared(const TrafficLine& line) {  // parts of weights and gradients
  return line.what == "weights" || line.what == "gradients" ||
         line.what == "gradients of tied weights";
}

}  // namespace

double memory_bytes(const StateMemory& memory, const shard::StoreOptions& store) {
  double bytes = 0;
  for (const NamedShard& shard : memory.shards) {
    const double elements = double(shard.bytes.trainable) / 4;
    if (shard.state == "weights") bytes += elements * (4 + store.training.bits / 8);
    if (shard.state == "grads")
      bytes += elements * (kOptimizerBytes + 4 + shard::gradient_type(store).bits / 8);
  }
  return bytes;
}

StepTime step_time(const TimeQuestion& q) {
  StepTime time;
  const shard::World& world = q.plan.world;
  if (!q.hardware.peak) {
    time.left_out.push_back("all of it: --peak was not given");
    return time;
  }
  const double peak = *q.hardware.peak;
  const auto pipeline_bandwidth = q.hardware.bandwidth(world, GroupKind::kPipeline);
  std::vector<StageTime> stages = q.stages;  // in operations and bytes so far
  for (StageTime& stage : stages) {
    stage.forward /= peak;
    stage.backward /= peak;
    stage.forward_message /= pipeline_bandwidth.value_or(INFINITY);
    stage.backward_message /= pipeline_bandwidth.value_or(INFINITY);
  }
  const double walk = duration(q.schedules, stages);
  double slowest = 0;  // to compute
  for (const KindPlan& kind : q.plan.kinds) slowest = std::max(slowest, kind.flops / peak);
  std::vector<std::string> left_out;
  const auto leave_out = [&](const std::string& what) {
    if (std::find(left_out.begin(), left_out.end(), what) == left_out.end())
      left_out.push_back(what);
  };
  if (world.pipeline > 1 && !pipeline_bandwidth) leave_out("messages between stages: no bandwidth");
  double shared = 0, inside = 0, memory = 0;  // the most of any kind
  for (const KindPlan& kind : q.plan.kinds) {
    const auto parts = sending(kind, world, q.hardware, is_shared);
    if (!parts) leave_out("gathering weights and reducing gradients: no --bandwidth");
    shared = std::max(shared, parts.value_or(0));
    const auto rest = sending(kind, world, q.hardware, [](const TrafficLine& line) {
      return !is_shared(line) && line.operation != Operation::kSend;
    });
    if (!rest) leave_out("what layers and steps agree on: no --bandwidth");
    inside = std::max(inside, rest.value_or(0));
    if (q.hardware.memory_bandwidth)
      memory = std::max(memory, memory_bytes(kind.memory, q.store) / *q.hardware.memory_bandwidth);
  }
  if (layers_communicate(world)) leave_out("what layers send over tensor and sequence-data ranks");
  if (!q.hardware.memory_bandwidth) leave_out("the optimizer: no --memory-bandwidth");
  time.left_out = std::move(left_out);
  time.parts = {{"computing", slowest},
                {"waiting for other stages", std::max(0.0, walk - slowest)},
                {"gathering and reducing", shared * (1 - q.hardware.overlap)},
                {"other collectives", inside},
                {"optimizer and copies", memory}};
  double total = 0;
  const Part* most = &time.parts.front();
  for (const Part& part : time.parts) {
    total += part.seconds;
    if (part.seconds > most->seconds) most = &part;
  }
  time.bound_by = most->name;
  time.seconds = total;
  time.tokens_per_second = double(q.plan.tokens) / total;
  time.days = total * double(q.plan.train_iters) / 86400;
  time.utilization = q.plan.model_flops / (total * peak * world.size());
  return time;
}

}  // namespace fastllm::plan
