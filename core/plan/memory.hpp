// The bytes that a kind of rank holds: what a run prints at start, and which of it is of trainable
// and which of frozen parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/shard/store.hpp"

namespace fastllm::plan {

struct Split {
  int64_t trainable = 0, frozen = 0;
  int64_t bytes() const { return trainable + frozen; }
};

struct NamedShard {
  std::string state;  // "weights"
  Split bytes;
};

struct StateMemory {
  shard::AllocationTable table;  // as printed at start; the parts below add up to it
  // Of a buffer that several stages use in turn: as the largest of them fills it.
  Split weight_buffers, gradient_buffers;
  std::vector<NamedShard> shards;
};
StateMemory state_memory(const shard::Layout& layout, int rank, const shard::StoreOptions& options);

}  // namespace fastllm::plan
