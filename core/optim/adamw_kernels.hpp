// AdamW's two passes over arrays, as the processor makes them; core/cuda/adamw.hpp has them on a
// device. The arithmetic that both share is here, to the letter.
#pragma once

#include <cstdint>
#include <span>

namespace fastllm::optim {

// A run of elements of one group.
struct AdamWChunk {
  float* weights;  // where the run begins
  int64_t state_begin, elements;
  int32_t group;
  int32_t in_norm;  // 1: this rank counts it (Slice::in_norm)
};

// One group's step (docs/compatibility.md), with the bias corrections already divided out:
// step = lr / (1 - b1^t), root = 1 / sqrt(1 - b2^t), keep = 1 - lr * weight decay.
// clip: what a gradient is multiplied with, which also takes the loss scale away.
struct AdamWFactors {
  float clip, beta_1, one_minus_beta_1, beta_2, one_minus_beta_2, keep, step, root, epsilon;
};

// Flat float32 arrays; chunks say where.
struct AdamWArrays {
  float *exp_avgs, *exp_avgs_sq;
  const float* grads;
};

// squares[chunk] = sum of the squares of its gradients.
void sum_of_squares(std::span<const AdamWChunk> chunks, const float* grads, double* squares);
void adamw_update(std::span<const AdamWChunk> chunks, std::span<const AdamWFactors> groups,
                  const AdamWArrays& arrays);

}  // namespace fastllm::optim
