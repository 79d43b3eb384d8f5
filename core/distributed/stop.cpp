#include "core/distributed/stop.hpp"

#include "core/base/cancel.hpp"

namespace fastllm::distributed {

int agree_on_stop(Communicator& world) {
  int64_t signal = stop_signal().load(std::memory_order_relaxed);
  world.all_reduce({&signal, 1, kInt64}, Reduce::kMax).wait();
  return int(signal);
}

}  // namespace fastllm::distributed
