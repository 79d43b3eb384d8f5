// Layer and RMS normalization over rows, forward and backward, each one pass over memory. y = x_hat
// * (weight + offset) + bias, x_hat = (x - mean) / sqrt(var + epsilon); RMS: mean is 0 and there is
// no bias.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

struct NormShape {
  int64_t rows, columns;
  bool centered;  // subtract the mean (layer norm)
  float epsilon;
  float offset;  // 1 when the weight is stored around 0
};

// mean [rows] (null when not centered) and inverse [rows] = 1 / sqrt(var + epsilon) are kept for
// backward.
void norm_forward(const NormShape& shape, const float* x, const float* weight, const float* bias,
                  float* y, float* mean, float* inverse);

struct NormGradients {
  float* x = nullptr;               // [rows, columns], written; null: not wanted
  const float* residual = nullptr;  // added to x's gradient; may be the memory of x
  float* weight = nullptr;          // [columns]; null: frozen
  float* bias = nullptr;
  bool overwrite_weight = false, overwrite_bias = false;
};
void norm_backward(const NormShape& shape, const float* x, const float* weight, const float* mean,
                   const float* inverse, const float* dy, const NormGradients& gradients);

}  // namespace fastllm::gpt
