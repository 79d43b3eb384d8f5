// The most memory that values between layers and their gradients take on a rank in one step: the
// executor's rules of who holds what until when, walked with numbers instead of memory. What layers
// keep inside is the model's and not in it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/schedule.hpp"
#include "core/shard/layout.hpp"
#include "core/train/executor/crossings.hpp"
#include "core/train/executor/wiring.hpp"

namespace fastllm::plan {

struct MicroBatch {
  int64_t samples = 1, length = 1;  // tokens of a sample
};

// What layers do and say, worked out once for all kinds of ranks.
struct Wires {
  const train::Wiring& wiring;
  const train::Crossings& crossings;
  const shard::Layout& layout;
  DLDataType training;
  bool recompute = false;
};

struct Activations {
  int64_t peak_bytes = 0;  // as the pool takes them of the system
  // The most of these and of what layers keep inside, together; the same when that is not known.
  int64_t peak_with_kept = 0;
  // By layer: forward calls in a step, and those of them that are made again for a backward.
  std::vector<int64_t> forwards, recomputed;
  std::vector<int64_t> backwards;
};
// kept: by layer, bytes that it keeps inside from a forward to its backward; empty: not known.
Activations activations(const Wires& wires, int rank, const std::vector<model::Step>& schedule,
                        const MicroBatch& micro_batch, const std::vector<int64_t>& kept = {});

}  // namespace fastllm::plan
