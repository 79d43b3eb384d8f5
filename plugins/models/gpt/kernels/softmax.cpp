// Runs on the calling thread: attention divides blocks over threads.
#include "kernels/softmax.hpp"

#include <algorithm>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

// The columns that a row sees.
struct Seen {
  int64_t begin, end;
};
FASTLLM_INLINE Seen seen_by(const ScoreBlock& block, int64_t row) {
  const int64_t end = block.diagonal + row + 1;
  return {std::max<int64_t>(0, end - block.window), end};
}
FASTLLM_INLINE void clear_unseen(const ScoreBlock& block, const Seen& seen, float* row) {
  std::fill(row, row + seen.begin, 0.0f);
  std::fill(row + seen.end, row + block.keys, 0.0f);
}

}  // namespace

FASTLLM_KERNEL void attention_softmax(const ScoreBlock& block, float* scores,
                                      const SoftmaxRows& rows) {
  for (int64_t row = 0; row < block.rows; ++row) {
    float* s = scores + row * block.stride;
    const Seen seen = seen_by(block, row);
    float maximum = s[seen.begin];
#pragma omp simd reduction(max : maximum)
    for (int64_t i = seen.begin; i < seen.end; ++i) maximum = s[i] > maximum ? s[i] : maximum;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = seen.begin; i < seen.end; ++i) {
      const float e = fast_exp((s[i] - maximum) * block.scale);
      s[i] = e;
      sum += e;
    }
    if (block.dropout.active()) {
      const uint64_t number = block.first_number + uint64_t(row) * block.numbers_a_row;
#pragma omp simd
      for (int64_t i = seen.begin; i < seen.end; ++i)
        s[i] *= block.dropout.factor(number + uint64_t(i));
    }
    clear_unseen(block, seen, s);
    rows.maximum[row] = maximum;
    rows.inverse_sum[row] = 1.0f / sum;
  }
}

// scale * weight * (d - sum of weight * d), d the gradient of the weight before dropout. The sum is
// taken over the row, not from the attention's output: where one weight is nearly 1 the two terms
// cancel, and only so to the last digit.
FASTLLM_KERNEL void attention_softmax_backward(const ScoreBlock& block, const SoftmaxRows& rows,
                                               float* scores, float* d_weights) {
  for (int64_t row = 0; row < block.rows; ++row) {
    float* __restrict s = scores + row * block.stride;
    float* __restrict d = d_weights + row * block.stride;
    const Seen seen = seen_by(block, row);
    const float maximum = rows.maximum[row], inverse_sum = rows.inverse_sum[row];
    const uint64_t number = block.first_number + uint64_t(row) * block.numbers_a_row;
    const bool drops = block.dropout.active();
    if (drops) {
#pragma omp simd
      for (int64_t i = seen.begin; i < seen.end; ++i)
        d[i] *= block.dropout.factor(number + uint64_t(i));
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = seen.begin; i < seen.end; ++i) {
      const float weight = fast_exp((s[i] - maximum) * block.scale) * inverse_sum;
      s[i] = weight;
      sum += weight * d[i];
    }
#pragma omp simd
    for (int64_t i = seen.begin; i < seen.end; ++i) d[i] = block.scale * s[i] * (d[i] - sum);
    if (drops) {
#pragma omp simd
      for (int64_t i = seen.begin; i < seen.end; ++i)
        s[i] *= block.dropout.factor(number + uint64_t(i));
    }
    clear_unseen(block, seen, s);
    clear_unseen(block, seen, d);
  }
}

FASTLLM_KERNEL void store_rows(int64_t rows, int64_t width, const float* from, int64_t from_stride,
                               const float* factors, float* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* __restrict f = from + row * from_stride;
    float* __restrict t = to + row * to_stride;
    const float factor = factors ? factors[row] : 1.0f;
    for (int64_t i = 0; i < width; ++i) t[i] = f[i] * factor;
  }
}

}  // namespace fastllm::gpt
