// A row of logits is read from memory once: maximum, sum of exponentials and gradient come from
// cache. Losses are kept by row and added in order, in double, so that neither threads nor length
// change the sum's bits or its precision.
#include "kernels/cross_entropy.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

// Long rows are summed in blocks, added up in double: single precision alone would lose a digit at
// 50,000 entries.
constexpr int64_t kBlock = 1024;

FASTLLM_INLINE float largest(const float* values, int64_t count) {
  float maximum = values[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < count; ++i) maximum = values[i] > maximum ? values[i] : maximum;
  return maximum;
}

// With and without a gradient the same values are added in the same order: recomputing with SAVE
// gives the same bits.
template <bool with_gradient>
FASTLLM_INLINE LossSums one_row(const float* logits, int64_t label, int64_t vocabulary,
                                const LossFactors& factors, float* gradient) {
  const float maximum = largest(logits, vocabulary);
  const float target = logits[label];  // before a gradient takes its place
  double sum = 0;
  for (int64_t begin = 0; begin < vocabulary; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, vocabulary);
    float block = 0;
#pragma omp simd reduction(+ : block) simdlen(8)
    for (int64_t i = begin; i < end; ++i) {
      const float e = fast_exp(logits[i] - maximum);
      if constexpr (with_gradient) gradient[i] = e;
      block += e;
    }
    sum += block;
  }
  const double z = std::log(sum) + double(maximum);
  if constexpr (with_gradient) {
    const float share = float((factors.cross_entropy + 2 * factors.z * z) / sum);
#pragma omp simd
    for (int64_t i = 0; i < vocabulary; ++i) gradient[i] *= share;
    gradient[label] -= float(factors.cross_entropy);
  }
  return {z - double(target), z * z};
}

FASTLLM_KERNEL void some_maxima(const float* logits, int64_t begin, int64_t end, int64_t columns,
                                float* maximum) {
  for (int64_t row = begin; row < end; ++row)
    maximum[row] = largest(logits + row * columns, columns);
}

FASTLLM_KERNEL void some_exponentials(const float* logits, int64_t begin, int64_t end,
                                      int64_t columns, const float* maximum, float* exponentials,
                                      float* sums) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = logits + row * columns;
    float* to = exponentials ? exponentials + row * columns : nullptr;
    double sum = 0;
    for (int64_t first = 0; first < columns; first += kBlock) {
      const int64_t last = std::min(first + kBlock, columns);
      float block = 0;
      if (to) {
#pragma omp simd reduction(+ : block) simdlen(8)
        for (int64_t i = first; i < last; ++i) block += to[i] = fast_exp(from[i] - maximum[row]);
      } else {
#pragma omp simd reduction(+ : block) simdlen(8)
        for (int64_t i = first; i < last; ++i) block += fast_exp(from[i] - maximum[row]);
      }
      sum += block;
    }
    sums[2 * row] = float(sum);
  }
}

FASTLLM_KERNEL void scale_row(float* row, int64_t columns, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) row[i] *= factor;
}

FASTLLM_KERNEL void some_rows(const float* logits, const int64_t* labels, int64_t begin,
                              int64_t end, int64_t vocabulary, const LossFactors& factors,
                              float* gradient, LossSums* losses) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = logits + row * vocabulary;
    float* to = gradient ? gradient + row * vocabulary : nullptr;
    if (labels[row] == kNoLabel) {
      losses[row] = {};
      if (to) std::fill(to, to + vocabulary, 0.0f);
    } else {
      losses[row] = to ? one_row<true>(from, labels[row], vocabulary, factors, to)
                       : one_row<false>(from, labels[row], vocabulary, factors, to);
    }
  }
}

}  // namespace

LossSums cross_entropy(const float* logits, const int64_t* labels, int64_t rows, int64_t vocabulary,
                       const LossFactors& factors, float* gradient) {
  std::vector<LossSums> losses(static_cast<size_t>(rows));
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    some_rows(logits, labels, begin, end, vocabulary, factors, gradient, losses.data());
  });
  LossSums sums;
  for (const LossSums& loss : losses) {
    sums.cross_entropy += loss.cross_entropy;
    sums.z += loss.z;
  }
  return sums;
}

void row_maxima(const float* logits, const OwnColumns& own, float* maximum) {
  at::parallel_for(0, own.rows, 1, [&](int64_t begin, int64_t end) {
    some_maxima(logits, begin, end, own.columns, maximum);
  });
}

void row_sums(const float* logits, const int64_t* labels, const OwnColumns& own,
              const float* maximum, float* exponentials, float* sums) {
  at::parallel_for(0, own.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t column = labels[row] - own.first;
      const bool here = labels[row] != kNoLabel && column >= 0 && column < own.columns;
      sums[2 * row + 1] = here ? logits[row * own.columns + column] : 0;
    }
    some_exponentials(logits, begin, end, own.columns, maximum, exponentials, sums);
  });
}

LossSums cross_entropy_of_sums(const int64_t* labels, const OwnColumns& own, const float* maximum,
                               const float* sums, const LossFactors& factors, float* gradient) {
  LossSums total;
  for (int64_t row = 0; row < own.rows; ++row) {
    if (labels[row] == kNoLabel) continue;
    const double z = std::log(double(sums[2 * row])) + double(maximum[row]);
    total.cross_entropy += z - double(sums[2 * row + 1]);
    total.z += z * z;
  }
  if (!gradient) return total;
  at::parallel_for(0, own.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* to = gradient + row * own.columns;
      if (labels[row] == kNoLabel) {
        std::fill_n(to, own.columns, 0.0f);
        continue;
      }
      const double sum = double(sums[2 * row]), z = std::log(sum) + double(maximum[row]);
      scale_row(to, own.columns, float((factors.cross_entropy + 2 * factors.z * z) / sum));
      const int64_t column = labels[row] - own.first;
      if (column >= 0 && column < own.columns) to[column] -= float(factors.cross_entropy);
    }
  });
  return total;
}

}  // namespace fastllm::gpt
