#include "core/train/ranks.hpp"

namespace fastllm::train {

int64_t Ranks::most(int64_t here) const {
  if (world) world->all_reduce({&here, 1, distributed::kInt64}, distributed::Reduce::kMax).wait();
  return here;
}

int64_t Ranks::of_main(int64_t value) const {
  if (world) world->broadcast({&value, 1, distributed::kInt64}, 0).wait();
  return value;
}

}  // namespace fastllm::train
