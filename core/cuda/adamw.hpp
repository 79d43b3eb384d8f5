// core/optim/adamw_kernels.hpp on a device: AdamW over shards, all chunks of all groups in one launch.
// Chunks, groups, weights and arrays lie on the stream's device.
#pragma once

#include <cuda_runtime_api.h>

#include "core/optim/adamw_kernels.hpp"

namespace fastllm::cuda {

// squares [count], in double and in an order of their own: equal in all runs.
void sum_of_squares(const optim::AdamWChunk* chunks, int64_t count, const float* grads,
                    double* squares, cudaStream_t stream);
// The processor's bits: no contraction, and roots and quotients as IEEE 754 has them.
void adamw_update(const optim::AdamWChunk* chunks, int64_t count, const optim::AdamWFactors* groups,
                  const optim::AdamWArrays& arrays, cudaStream_t stream);

}  // namespace fastllm::cuda
