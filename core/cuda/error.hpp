// What the CUDA runtime says, as the host's errors; and whether there is a device at all.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

namespace fastllm::cuda {

// Throws Error with the name of the CUDA error. what: "a stream on CUDA device 0".
void check(cudaError_t error, const std::string& what);

// Why no work can be given to a CUDA device here, as a sentence: no driver, an old one, no device, one
// that the kernels were not built for. nullopt: device 0 can be used.
std::optional<std::string> why_no_device(int device = 0);

}  // namespace fastllm::cuda
