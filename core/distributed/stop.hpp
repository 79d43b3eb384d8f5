// A signal that one rank got takes effect on all at the same step.
#pragma once

#include "core/distributed/communicator.hpp"

namespace fastllm::distributed {

// One small all_reduce. The number of the signal, 0: none. All ranks of the world
// call it, and all get the same.
int agree_on_stop(Communicator& world);

}  // namespace fastllm::distributed
