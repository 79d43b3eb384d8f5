// core/shard/elements.hpp on a device: passes over arrays of float32, bfloat16 or float16 in a stream.
#pragma once

#include <cuda_runtime_api.h>
#include <dlpack/dlpack.h>

#include <cstdint>

namespace fastllm::cuda {

void copy(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n,
          cudaStream_t stream);
void add(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n,
         cudaStream_t stream);
void fill_zero(void* to, DLDataType type, int64_t n, cudaStream_t stream);

}  // namespace fastllm::cuda
