// Sums of a few numbers over ranks.
#pragma once

#include <span>

#include "core/distributed/communicator.hpp"

namespace fastllm::distributed {

// Each value becomes the sum of it over all ranks of the group, added in double precision in the order
// of the ranks: the same bits everywhere. Null: one rank. Returns when done; all ranks call.
void sum_over(Communicator* group, std::span<double> values);

}  // namespace fastllm::distributed
