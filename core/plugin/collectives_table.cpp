// Checks what a plugin passes, and waits for each call: on a processor the order of calls is the stream.
#include "core/plugin/collectives_table.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin/host_services.hpp"

namespace fastllm::plugin {
namespace {

using distributed::Communicator;
using distributed::ConstMemory;
using distributed::Memory;
using distributed::Reduce;

GroupFinder& finder() {
  static auto* instance = new GroupFinder;  // plugins may ask while the process ends
  return *instance;
}

// A group of the contract that no mesh has yet: one rank.
Communicator& alone() {
  static auto* instance =
      distributed::make_single(distributed::Group{"expert", "", 0, {0}}).release();
  return *instance;
}

Communicator& group_of(const char* name) {
  const std::string_view wanted = name ? name : "";
  if (wanted == "expert") return alone();
  Communicator* found = finder() && name ? finder()(wanted) : nullptr;
  if (!found) {
    throw Error(Status::kInvalid,
                fmt::format("expected a group tensor, sequence_data, data, expert, pipeline or "
                            "world, found {}",
                            name ? name : "NULL"));
  }
  return *found;
}

Memory memory_of(const DLTensor* tensor) {
  if (!tensor) throw Error(Status::kInvalid, "expected a tensor to communicate, found NULL");
  if (tensor->device.device_type != kDLCPU) {
    throw Error(Status::kUnsupported,
                fmt::format("expected a tensor on the CPU to communicate, found one on a device of "
                            "type {}",
                            int(tensor->device.device_type)));
  }
  int64_t count = 1;
  for (int k = tensor->ndim - 1; k >= 0; --k) {
    if (tensor->strides && tensor->shape[k] > 1 && tensor->strides[k] != count) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a contiguous tensor to communicate, found stride {} in "
                              "dimension {}, where {} would be",
                              tensor->strides[k], k, count));
    }
    count *= tensor->shape[k];
  }
  Memory memory;
  memory.data =
      tensor->data ? static_cast<std::byte*>(tensor->data) + tensor->byte_offset : nullptr;
  memory.count = count;
  memory.type = tensor->dtype;
  return memory;
}

Reduce reduction(int32_t op) {
  if (op != FASTLLM_SUM && op != FASTLLM_MAX && op != FASTLLM_MEAN) {
    throw Error(Status::kInvalid,
                fmt::format("expected FASTLLM_SUM, FASTLLM_MAX or FASTLLM_MEAN, found {}", op));
  }
  return Reduce(op);
}

// Elements for each rank, of rows along dimension 0; none given: none.
std::vector<int64_t> elements(const int64_t* rows, const DLTensor* tensor, int ranks) {
  std::vector<int64_t> result;
  int64_t row = 1;
  for (int k = 1; k < tensor->ndim; ++k) row *= tensor->shape[k];
  for (int rank = 0; rows && rank < ranks; ++rank) result.push_back(rows[rank] * row);
  return result;
}

int32_t rank_in(const char* group) {
  try {
    return group_of(group).rank();
  } catch (...) {
    return 0;
  }
}

int32_t count_of(const char* group) {
  try {
    return group_of(group).size();
  } catch (...) {
    return 1;
  }
}

fastllm_status all_reduce(const char* group, int32_t op, DLTensor* inout, void*) {
  return host_function([&] { group_of(group).all_reduce(memory_of(inout), reduction(op)).wait(); });
}

fastllm_status all_gather(const char* group, const DLTensor* in, DLTensor* out, void*) {
  return host_function([&] { group_of(group).all_gather(memory_of(in), memory_of(out)).wait(); });
}

fastllm_status reduce_scatter(const char* group, int32_t op, const DLTensor* in, DLTensor* out,
                              void*) {
  return host_function(
      [&] { group_of(group).reduce_scatter(memory_of(in), memory_of(out), reduction(op)).wait(); });
}

fastllm_status all_to_all(const char* group, const DLTensor* in, const int64_t* in_rows,
                          DLTensor* out, const int64_t* out_rows, void*) {
  return host_function([&] {
    Communicator& ranks = group_of(group);
    const Memory from = memory_of(in), to = memory_of(out);
    const auto sent = elements(in_rows, in, ranks.size());
    const auto received = elements(out_rows, out, ranks.size());
    ranks.all_to_all(from, sent, to, received).wait();
  });
}

const fastllm_collectives* table() {
  static const fastllm_collectives result = [] {
    fastllm_collectives t{};
    t.size = sizeof t;
    t.rank = rank_in;
    t.count = count_of;
    t.all_reduce = all_reduce;
    t.all_gather = all_gather;
    t.reduce_scatter = reduce_scatter;
    t.all_to_all = all_to_all;
    return t;
  }();
  return &result;
}

}  // namespace

void offer_collectives(GroupFinder groups) {
  finder() = std::move(groups);
  offer(FASTLLM_COLLECTIVES, finder() ? table() : nullptr);
}

}  // namespace fastllm::plugin
