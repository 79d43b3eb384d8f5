// The library that talks to other processes, opened at run time by runs of several ranks alone: it
// brings LibTorch, which takes a while to load. docs/adr/0012.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "core/distributed/groups.hpp"
#include "core/distributed/messages.hpp"
#include "core/distributed/store.hpp"

namespace fastllm::distributed {

struct StoreAddress {
  std::string host;
  int port = 0;
  std::optional<int> listening;  // a socket: this process holds the store, and serves it there
  std::string prefix;            // before all keys
  std::chrono::milliseconds timeout{0};
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Store> open_store(const StoreAddress& address) = 0;
  // Waits until all members have come. Store: of open_store, and in use until this returns.
  virtual std::unique_ptr<Messages> open_messages(Store& store, const Group& group,
                                                  const std::string& master_host,
                                                  std::chrono::milliseconds timeout) = 0;
};

// Loads it at the first call; stays. Throws Error with what to do when it cannot be had.
Backend& load_backend();

// The one symbol of the library. `built_for`: version and build of the caller, to match its own.
#define FASTLLM_BACKEND_SYMBOL "fastllm_distributed_backend"
using BackendEntry = Backend*(const char* built_for);

}  // namespace fastllm::distributed
