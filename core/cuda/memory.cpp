#include "core/cuda/memory.hpp"

#include <fmt/format.h>

#include "core/cuda/error.hpp"
#include "core/cuda/stream.hpp"

namespace fastllm::cuda {

// What freeing could say has been said by the work before it.
void FreeDevice::operator()(void* data) const noexcept { cudaFree(data); }
void FreePinned::operator()(void* data) const noexcept { cudaFreeHost(data); }

DeviceMemory::DeviceMemory(int device, size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const OnDevice on(device);
  void* data = nullptr;
  check(cudaMalloc(&data, bytes),
        fmt::format("{} bytes of memory on CUDA device {}", bytes, device));
  data_.reset(data);
}

PinnedMemory::PinnedMemory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes),
        fmt::format("{} bytes of host memory that CUDA devices reach", bytes));
  data_.reset(data);
}

}  // namespace fastllm::cuda
