#include "core/distributed/traffic.hpp"

namespace fastllm::distributed {

const char* operation_name(Operation operation) {
  constexpr const char* names[kOperations] = {"all_reduce", "all_gather", "reduce_scatter",
                                              "broadcast",  "all_to_all", "send",
                                              "receive",    "barrier"};
  return names[size_t(operation)];
}

int64_t bytes_sent(Operation operation, int64_t count, int element_bytes, int size, int rank,
                   int root) {
  if (size == 1) return 0;
  const int64_t bytes = count * element_bytes, others = size - 1;
  switch (operation) {
    case Operation::kAllReduce: {
      if (bytes <= kWholeAllReduce) return others * bytes;
      // Every other rank's part of the terms, then the own part of the sum to each.
      const int64_t own = part_begin(count, size, rank + 1) - part_begin(count, size, rank);
      return (count - own + others * own) * element_bytes;
    }
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return others * bytes;
    case Operation::kBroadcast:
      return rank == root ? others * bytes : 0;
    case Operation::kSend:
      return bytes;
    case Operation::kReceive:
      return 0;
    case Operation::kBarrier: {
      int64_t rounds = 0;
      for (int distance = 1; distance < size; distance *= 2) ++rounds;
      return rounds;
    }
  }
  return 0;
}

}  // namespace fastllm::distributed
