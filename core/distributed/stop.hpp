// A signal that one rank got takes effect on all at the same step.
#pragma once

#include "core/distributed/communicator.hpp"

namespace fastllm::distributed {

// Where the ranks sum something anyway (the gradient norm, the losses), the wish to stop rides along as
// one more term: append stop_term() before the sum, and read it with stop_wanted() after.
float stop_term();  // 1 when this rank was asked to stop, else 0
inline bool stop_wanted(float sum) { return sum > 0; }

// Where nothing rides: one small all_reduce. The number of the signal, 0: none. All ranks of the world
// call it, and all get the same.
int agree_on_stop(Communicator& world);

}  // namespace fastllm::distributed
