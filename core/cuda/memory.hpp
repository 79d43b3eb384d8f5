// Memory of a device, and memory of the host that devices copy from and to without a stop on the way.
// Owned, movable, freed at the end; nobody may use it by then.
#pragma once

#include <cstddef>
#include <memory>

namespace fastllm::cuda {

struct FreeDevice {
  void operator()(void* data) const noexcept;
};
struct FreePinned {
  void operator()(void* data) const noexcept;
};

// Aligned to 256 bytes, contents undefined; null for 0 bytes. Throws Error(kOutOfMemory).
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(int device, size_t bytes);
  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, FreeDevice> data_;
  size_t bytes_ = 0;
};

class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(size_t bytes);
  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, FreePinned> data_;
  size_t bytes_ = 0;
};

}  // namespace fastllm::cuda
