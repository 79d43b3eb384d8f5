// Short texts by key that all ranks of a run see, held by one process. No call waits for a key: who
// waits asks again, and can look at other things meanwhile. One thread at a time.
// Calls throw StoreLost when the process that holds the texts cannot be reached.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace fastllm::distributed {

// What went wrong, in the words of the network.
struct StoreLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;
  virtual bool has(std::span<const std::string> keys) = 0;          // all of them
  virtual int64_t add(const std::string& key, int64_t amount) = 0;  // returns the sum
  virtual void remove(const std::string& key) = 0;  // one that is not there: nothing
};

}  // namespace fastllm::distributed
