// Runs on the calling thread: attention divides blocks over threads. Only the columns a row sees
// are computed; the rest of the block is filled with zeros for the products that follow.
#include "kernels/softmax.hpp"

#include <algorithm>

#include "kernels/common.hpp"

namespace fastllm::gpt {

FASTLLM_KERNEL void causal_softmax(const ScoreBlock& block, float* scores,
                                   const SoftmaxRows& rows) {
  for (int64_t row = 0; row < block.rows; ++row) {
    float* s = scores + row * block.keys;
    const int64_t seen = block.first + row + 1;
    float maximum = s[0];
#pragma omp simd reduction(max : maximum)
    for (int64_t i = 0; i < seen; ++i) maximum = s[i] > maximum ? s[i] : maximum;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < seen; ++i) {
      const float e = fast_exp((s[i] - maximum) * block.scale);
      s[i] = e;
      sum += e;
    }
    std::fill(s + seen, s + block.keys, 0.0f);
    rows.maximum[row] = maximum;
    rows.inverse_sum[row] = 1.0f / sum;
  }
}

FASTLLM_KERNEL void causal_weights(const ScoreBlock& block, float* scores,
                                   const SoftmaxRows& rows) {
  for (int64_t row = 0; row < block.rows; ++row) {
    float* s = scores + row * block.keys;
    const int64_t seen = block.first + row + 1;
    const float maximum = rows.maximum[row], inverse_sum = rows.inverse_sum[row];
#pragma omp simd
    for (int64_t i = 0; i < seen; ++i) {
      s[i] = fast_exp((s[i] - maximum) * block.scale) * inverse_sum;
    }
    std::fill(s + seen, s + block.keys, 0.0f);
  }
}

// scale * weight * (d_weight - sum of weight * d_weight). The sum is taken over the row, not from
// the attention's output: where one weight is nearly 1 the two terms cancel, and only so to the
// last digit.
FASTLLM_KERNEL void causal_softmax_backward(const ScoreBlock& block, const float* weights,
                                            float* d_weights) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* w = weights + row * block.keys;
    float* __restrict d = d_weights + row * block.keys;
    const int64_t seen = block.first + row + 1;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < seen; ++i) sum += w[i] * d[i];
    for (int64_t i = 0; i < seen; ++i) d[i] = block.scale * w[i] * (d[i] - sum);
    std::fill(d + seen, d + block.keys, 0.0f);
  }
}

FASTLLM_KERNEL void scale_rows(int64_t rows, int64_t width, int64_t stride, const float* factors,
                               float* values) {
  for (int64_t row = 0; row < rows; ++row) {
    float* __restrict v = values + row * stride;
    for (int64_t i = 0; i < width; ++i) v[i] *= factors[row];
  }
}

}  // namespace fastllm::gpt
