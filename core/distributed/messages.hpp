// Bytes between two ranks of a group: all that a communicator needs of a network. A message is
// received by the call with the same tag; two of the same tag between the same ranks keep their order.
// Throws std::runtime_error with the network's words; so does wait().
#pragma once

#include <cstdint>
#include <memory>

#include "core/distributed/communicator.hpp"

namespace fastllm::distributed {

class Messages {
 public:
  virtual ~Messages() = default;
  virtual std::unique_ptr<Work> send(const void* data, int64_t bytes, int to, uint32_t tag) = 0;
  virtual std::unique_ptr<Work> receive(void* data, int64_t bytes, int from, uint32_t tag) = 0;
};

}  // namespace fastllm::distributed
