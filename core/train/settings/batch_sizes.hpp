// Sizes of a batch from those that were given (docs/compatibility.md).
#pragma once

#include <cstdint>
#include <optional>

#include "core/train/settings/problems.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

// Micro-batches of a step and a rank: what a schedule still counts in an int, with room.
constexpr int64_t kMostMicroBatches = 1 << 20;

// Reads the block `batch` and writes what was computed back into it. Sizes that do not fit become
// problems, and stay null in the tree and 1 in the result.
BatchSettings resolve_batch(config::Node& root, int64_t batch_data_parallel,
                            int64_t pipeline_parallel, Problems& problems,
                            std::vector<std::string>& notes);

}  // namespace fastllm::train
