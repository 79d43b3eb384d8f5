#include "core/train/ranks.hpp"

namespace fastllm::train {

bool Ranks::any(bool here) const {
  if (!world) return here;
  int64_t says = here;
  world->all_reduce({&says, 1, distributed::kInt64}, distributed::Reduce::kMax).wait();
  return says != 0;
}

int64_t Ranks::of_main(int64_t value) const {
  if (world) world->broadcast({&value, 1, distributed::kInt64}, 0).wait();
  return value;
}

}  // namespace fastllm::train
