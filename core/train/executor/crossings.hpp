// Which values go from one pipeline rank to another. A value travels with the stages: from the rank
// of a stage to that of the next, as long as a later stage of a rank that has not got it reads it.
// So a rank receives a value at most once, and sends it to one rank at most, in the order of the
// schedule; its gradient goes the same way back. Pure arithmetic.
#pragma once

#include <vector>

#include "core/shard/layout.hpp"
#include "core/train/executor/wiring.hpp"

namespace fastllm::train {

struct Crossings {
  // By stage: the values that come with its forward from the rank of the stage before.
  std::vector<std::vector<int>> into;
};
Crossings make_crossings(const Wiring& wiring, const shard::Layout& layout);

// By value: how many use it on a pipeline rank, readers and the way to the next rank alike.
std::vector<int> uses_on(const Wiring& wiring, const shard::Layout& layout,
                         const Crossings& crossings, int pipeline_rank);

// By layer: whether that pipeline rank runs it. Preprocessing layers run on all.
std::vector<char> layers_on(const Wiring& wiring, const shard::Layout& layout, int pipeline_rank);

}  // namespace fastllm::train
