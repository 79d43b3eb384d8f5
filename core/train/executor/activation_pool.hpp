// Blocks of memory for activations and their gradients, kept for the next layer and step instead of
// going back. Blocks are 64-byte aligned and by size: a block serves only requests of its own size.
// One thread. In builds with assertions a returned block is filled with NaN bytes, so that a plugin
// that keeps an input shows.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace fastllm::train {

class ActivationPool {
 public:
  ActivationPool() = default;
  ~ActivationPool();
  ActivationPool(const ActivationPool&) = delete;
  ActivationPool& operator=(const ActivationPool&) = delete;

  // What a request takes of the system.
  static int64_t block_bytes(int64_t bytes);

  // Content is unspecified; 0 bytes: null. Throws Error(kOutOfMemory).
  void* take(int64_t bytes);
  void give(void* block, int64_t bytes);

  int64_t bytes_in_use() const { return in_use_; }
  int64_t peak_bytes() const { return peak_; }
  int64_t allocations() const { return allocations_; }

 private:
  std::unordered_map<int64_t, std::vector<void*>> free_;  // by rounded size
  int64_t in_use_ = 0, peak_ = 0, allocations_ = 0;
};

}  // namespace fastllm::train
