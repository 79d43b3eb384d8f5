#include "core/distributed/sums.hpp"

#include <algorithm>
#include <vector>

namespace fastllm::distributed {

void sum_over(Communicator* group, std::span<double> values) {
  if (!group || values.empty()) return;
  // Gathered as bytes: what is exact needs no type that collectives know.
  std::vector<double> all(values.size() * size_t(group->size()));
  group
      ->all_gather({values.data(), int64_t(values.size_bytes()), kUint8},
                   {all.data(), int64_t(all.size() * sizeof(double)), kUint8})
      .wait();
  std::fill(values.begin(), values.end(), 0);
  for (size_t i = 0; i < all.size(); ++i) values[i % values.size()] += all[i];
}

}  // namespace fastllm::distributed
