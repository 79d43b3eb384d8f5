// Whether the ranks of a tensor group still have the same bits of what none of them has a part of
// (model.multi_stage.debug_tensor_parallel): they compute it each for itself, and no sum ever makes
// a difference good again.
#pragma once

#include <string>

#include "core/shard/store.hpp"
#include "core/train/ranks.hpp"

namespace fastllm::train {

// Warns "MISMATCH ..." of each parameter that this rank has otherwise than tensor rank 0. All tensor
// ranks call; with one nothing is done. state: "weights", "grads"; when: "after iteration 3".
void check_tensor_ranks(shard::Store& store, const std::string& state, const Ranks& ranks,
                        const std::string& when);

}  // namespace fastllm::train
