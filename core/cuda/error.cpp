#include "core/cuda/error.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace fastllm::cuda {

void check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // an error that the next launch would be blamed for
  const bool memory = error == cudaErrorMemoryAllocation;
  throw Error(memory ? Status::kOutOfMemory : Status::kUnavailable,
              fmt::format("expected {}, found {} ({}); {}", what, cudaGetErrorName(error),
                          cudaGetErrorString(error),
                          memory ? "nvidia-smi shows who uses the device's memory"
                                 : "nvidia-smi shows whether driver and device are well"));
}

std::optional<std::string> why_no_device(int device) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  cudaDeviceProp properties{};
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return fmt::format("expected an NVIDIA GPU with a driver for CUDA {}.{}, found {} ({})",
                       CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, cudaGetErrorName(error),
                       cudaGetErrorString(error));
  }
  if (properties.major < 8)
    return fmt::format("expected a GPU of compute capability 8.0 or later, found {}.{} ({})",
                       properties.major, properties.minor, properties.name);
  return std::nullopt;
}

}  // namespace fastllm::cuda
