// Collectives made of messages: every rank sends each other rank what it needs, and sums itself.
// Next to the library's own collectives: docs/adr/0012.
#pragma once

#include <functional>
#include <memory>

#include "core/distributed/communicator.hpp"
#include "core/distributed/messages.hpp"

namespace fastllm::distributed {

// Both may throw: before a call begins, and instead of what a message's wait() threw.
struct ExchangeHooks {
  std::function<void(const Group& group, Operation operation, int64_t number)> begin;
  std::function<void(const Group& group, Operation operation, int64_t number,
                     const std::string& reason)>
      failed;
};

std::unique_ptr<Communicator> make_exchange(Group group, std::unique_ptr<Messages> messages,
                                            ExchangeHooks hooks = {});

}  // namespace fastllm::distributed
