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
  // A row may be a head of a token: `heads` rows side by side, then the next token x_stride elements
  // further in x, y_stride in y and in the gradients dy, dx and residual. 0: heads * columns.
  int64_t heads = 1, x_stride = 0, y_stride = 0;

  constexpr int64_t x_at(int64_t row) const { return at(row, x_stride); }
  constexpr int64_t y_at(int64_t row) const { return at(row, y_stride); }

  constexpr int64_t at(int64_t row, int64_t stride) const {
    return stride == 0 ? row * columns : row / heads * stride + row % heads * columns;
  }
};

// y may be x's memory. mean [rows] (null when not centered) and inverse [rows] = 1 / sqrt(var + epsilon) are kept for
// backward.
void norm_forward(const NormShape& shape, const float* x, const float* weight, const float* bias,
                  float* y, float* mean, float* inverse);

// Element: of the values; gradients of weights are float32.
template <class Element>
struct NormGradientsOf {
  Element* x = nullptr;  // [rows, columns], written, may be dy's memory; null: not wanted
  const Element* residual = nullptr;  // added to x's gradient; may be the memory of x
  float* weight = nullptr;            // [columns]; null: frozen
  float* bias = nullptr;
  bool overwrite_weight = false, overwrite_bias = false;
};
using NormGradients = NormGradientsOf<float>;
void norm_backward(const NormShape& shape, const float* x, const float* weight, const float* mean,
                   const float* inverse, const float* dy, const NormGradients& gradients);

}  // namespace fastllm::gpt
