#include "core/plan/memory.hpp"

namespace fastllm::plan {
namespace {

int64_t element_bytes(DLDataType type) { return type.bits / 8; }

Split buffers(const shard::Layout& layout, const shard::BufferPlacement& placement, DLDataType type,
              bool gradients) {
  Split sum;
  for (const std::vector<int>& stages : placement.contents) {
    Split largest;
    for (int index : stages) {
      const shard::Stage& stage = layout.stages()[size_t(index)];
      Split own{stage.trainable_elements(), 0};
      if (!gradients) own.frozen = stage.elements() - own.trainable;
      if (own.bytes() > largest.bytes()) largest = own;
    }
    sum.trainable += largest.trainable * element_bytes(type);
    sum.frozen += largest.frozen * element_bytes(type);
  }
  return sum;
}

}  // namespace

StateMemory state_memory(const shard::Layout& layout, int rank,
                         const shard::StoreOptions& options) {
  StateMemory memory;
  memory.table = shard::allocation_table(layout, rank, options);
  const shard::BufferPlacement weights = shard::weight_placement(layout, rank, options);
  memory.weight_buffers = buffers(layout, weights, options.training, false);
  memory.gradient_buffers = buffers(layout, shard::gradient_placement(layout, rank, options),
                                    shard::gradient_type(options), true);
  std::vector<std::string> states{"weights"};
  states.insert(states.end(), options.optimizer_states.begin(), options.optimizer_states.end());
  states.push_back("grads");
  for (const std::string& state : states) {
    Split bytes;
    for (const shard::Placed& placed : layout.on_device(rank))
      for (const shard::Group& group : layout.stages()[size_t(placed.stage)].groups) {
        if (!layout.state_has(state, group)) continue;
        if (group.frozen)
          bytes.frozen += shard::frozen_shard_bytes(
              group, shard::frozen_shard(weights, placed.stage, options), options);
        else
          bytes.trainable += group.shard_elements * element_bytes(options.optimization);
      }
    memory.shards.push_back({state, bytes});
  }
  return memory;
}

}  // namespace fastllm::plan
