// Mirrors core/shard/store.cpp (gathering and reducing), core/train/executor/handover.cpp (between
// pipeline ranks) and what training asks of all ranks; the tests count real runs.
#include "core/plan/traffic.hpp"

#include <algorithm>
#include <map>

#include "core/shard/tied_groups.hpp"
#include "core/train/executor/value_shape.hpp"

namespace fastllm::plan {

using distributed::GroupKind;
using distributed::Operation;
using model::Phase;
using model::Step;

namespace {

class Counter {
 public:
  Counter(const shard::World& world, int rank) : world_(world), rank_(rank) {}

  // A call over a group of the mesh.
  int64_t add(GroupKind kind, Operation operation, const std::string& what, int64_t count,
              int element_bytes) {
    const auto server = distributed::served_by(world_, kind);
    if (!server || count == 0) return 0;
    const distributed::Group group = group_of(kind);
    return add({distributed::group_name(kind), distributed::group_name(*server), group.size(),
                operation, what},
               distributed::bytes_sent(operation, count, element_bytes, group.size(), group.rank));
  }
  int64_t add(TrafficLine key, int64_t bytes) {
    auto line = std::find_if(lines.begin(), lines.end(), [&](const TrafficLine& l) {
      return l.group == key.group && l.operation == key.operation && l.what == key.what;
    });
    if (line == lines.end()) line = lines.insert(lines.end(), std::move(key));
    ++line->calls;
    line->bytes += bytes;
    return bytes;
  }
  // As sum_over: numbers in double, gathered as bytes.
  void add_numbers(GroupKind kind, const std::string& what, size_t count) {
    add(kind, Operation::kAllGather, what, int64_t(count * sizeof(double)), 1);
  }

  std::vector<TrafficLine> lines;

 private:
  // Of a large world, each once.
  const distributed::Group& group_of(GroupKind kind) {
    auto found = groups_.find(kind);
    if (found == groups_.end())
      found = groups_.emplace(kind, distributed::group_of(world_, kind, rank_)).first;
    return found->second;
  }
  const shard::World& world_;
  int rank_;
  std::map<GroupKind, distributed::Group> groups_;
};

// What weight buffers hold from step to step.
class Weights {
 public:
  Weights(const shard::Layout& layout, int rank, const shard::StoreOptions& options,
          Counter& counter)
      : layout_(layout),
        bytes_(options.training.bits / 8),
        counter_(counter),
        buffers_(shard::weight_placement(layout, rank, options)),
        held_(buffers_.contents.size(), -1),
        valid_(layout.stages().size()) {
    for (size_t s = 0; s < valid_.size(); ++s)
      valid_[s].assign(layout.stages()[s].groups.size(), 0);
  }

  void restore(int stage) {
    int& held = held_[size_t(buffers_.buffer_of(stage))];
    if (held >= 0 && held != stage)
      std::fill(valid_[size_t(held)].begin(), valid_[size_t(held)].end(), 0);
    held = stage;
    const auto& groups = layout_.stages()[size_t(stage)].groups;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (valid_[size_t(stage)][g]) continue;
      counter_.add(GroupKind::kData, Operation::kAllGather, "weights", groups[g].shard_elements,
                   bytes_);
      valid_[size_t(stage)][g] = 1;
    }
  }
  void updated() {
    for (size_t s = 0; s < valid_.size(); ++s)
      for (size_t g = 0; g < valid_[s].size(); ++g)
        if (!layout_.stages()[s].groups[g].frozen) valid_[s][g] = 0;
  }

 private:
  const shard::Layout& layout_;
  const int bytes_;
  Counter& counter_;
  const shard::BufferPlacement buffers_;
  std::vector<int> held_;                 // stage by buffer
  std::vector<std::vector<char>> valid_;  // by stage, group
};

void add_reduction(Counter& counter, const shard::Stage& stage, int element_bytes) {
  for (const shard::Group& group : stage.groups)
    if (!group.frozen)
      counter.add(GroupKind::kData, Operation::kReduceScatter, "gradients", group.shard_elements,
                  element_bytes);
}

void add_messages(Counter& counter, const Wires& wires, const Step& step,
                  const MicroBatch& micro_batch) {
  if (step.to < 0) return;
  const bool forward = step.phase == Phase::kForward;
  const auto& values = wires.crossings.into[size_t(forward ? step.stage + 1 : step.stage)];
  for (int v : values) {
    const train::Value& value = wires.wiring.values[size_t(v)];
    if (!forward && !value.gradient) continue;
    const int64_t bytes =
        train::value_bytes(value, micro_batch.samples, micro_batch.length, wires.training).value();
    counter.add(GroupKind::kPipeline, Operation::kSend,
                forward ? "activations" : "gradients of activations", bytes, 1);
  }
}

// Gradients of stages that several pipeline ranks hold, since they share a weight of it.
void add_tied(Counter& counter, const shard::Layout& layout, int rank) {
  for (const auto& [stage, group] : shard::tied_groups(layout, rank))
    for (const shard::Group& own : layout.stages()[size_t(stage)].groups)
      if (!own.frozen)
        counter.add({group.name, group.name, group.size(), Operation::kAllReduce,
                     "gradients of tied weights"},
                    distributed::bytes_sent(Operation::kAllReduce, own.shard_elements, 4,
                                            group.size(), group.rank));
}

}  // namespace

int64_t StepTraffic::bytes() const {
  int64_t sum = 0;
  for (const TrafficLine& line : lines) sum += line.bytes;
  return sum;
}

StepTraffic step_traffic(const train::Settings& settings, const Wires& wires,
                         const shard::StoreOptions& store, int rank,
                         const std::vector<Step>& schedule, const MicroBatch& micro_batch) {
  const shard::Layout& layout = wires.layout;
  const int gradient_bytes = shard::gradient_type(store).bits / 8;
  Counter counter(layout.world(), rank);
  Weights weights(layout, rank, store, counter);
  const auto gather = [&] {
    for (const shard::Placed& placed : layout.on_device(rank))
      if (placed.copy) weights.restore(placed.stage);
    for (const Step& step : schedule)
      if (step.restore_before) weights.restore(step.stage);
    weights.updated();
  };
  StepTraffic traffic;
  gather();  // the first step
  for (const TrafficLine& line : counter.lines) traffic.first_step_bytes += line.bytes;
  counter.lines.clear();
  gather();
  for (const TrafficLine& line : counter.lines) traffic.first_step_bytes -= line.bytes;

  for (const Step& step : schedule) {
    add_messages(counter, wires, step, micro_batch);
    if (step.reduce_after)
      add_reduction(counter, layout.stages()[size_t(step.stage)], gradient_bytes);
  }
  for (const shard::Placed& placed : layout.on_device(rank))
    if (placed.copy) add_reduction(counter, layout.stages()[size_t(placed.stage)], gradient_bytes);
  add_tied(counter, layout, rank);

  for (GroupKind kind : {GroupKind::kData, GroupKind::kPipeline}) {
    counter.add_numbers(kind, "losses", wires.wiring.losses.size());
    counter.add_numbers(kind, "losses", wires.wiring.metrics.size());
  }
  // That a rank stops, and labels; the norm; what is due.
  counter.add_numbers(GroupKind::kWorld, "agreement", size_t(1 + wires.wiring.predicted_tokens));
  counter.add_numbers(GroupKind::kWorld, "gradient norm", settings.skip_step ? 0 : 2);
  counter.add_numbers(GroupKind::kWorld, "agreement", 4 + settings.training.validation.size());
  traffic.lines = std::move(counter.lines);
  std::erase_if(traffic.lines, [](const TrafficLine& line) { return line.bytes == 0; });
  return traffic;
}

}  // namespace fastllm::plan
