// Bytes that a rank sends, by operation: counted in a run, and foretold for a plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fastllm::distributed {

enum class Operation {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kSend,
  kReceive,
  kBarrier,
};
inline constexpr int kOperations = 8;
const char* operation_name(Operation operation);  // "all_reduce"

struct Traffic {
  struct Line {
    int64_t calls = 0, bytes = 0;  // bytes sent by this rank
  };
  std::array<Line, kOperations> lines;
  void add(Operation operation, int64_t bytes) {
    Line& line = lines[size_t(operation)];
    ++line.calls;
    line.bytes += bytes;
  }
  const Line& of(Operation operation) const { return lines[size_t(operation)]; }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Line& line : lines) sum += line.bytes;
    return sum;
  }
};

// An all_reduce of at most so many bytes goes whole to every rank: one message's delay instead of two.
inline constexpr int64_t kWholeAllReduce = int64_t(64) << 10;

// Part `index` of `count` elements cut over `parts` ranks begins here; sizes differ by one at most.
constexpr int64_t part_begin(int64_t count, int parts, int index) {
  return count / parts * index + (count % parts < index ? count % parts : index);
}

// Bytes that this rank of a group sends in one call over `count` elements: all elements of the rank
// for all_reduce, broadcast and send; of its part for all_gather and reduce_scatter.
// kAllToAll: equal parts of count elements each.
int64_t bytes_sent(Operation operation, int64_t count, int element_bytes, int size, int rank,
                   int root = 0);

}  // namespace fastllm::distributed
