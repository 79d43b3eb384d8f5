// A row fits in cache, so its statistics and its result cost one read from memory. Weight gradients
// are summed in pieces of rows of fixed length (row_sum.hpp), so threads do not change their bits.
#include "kernels/norm.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/common.hpp"
#include "kernels/row_sum.hpp"

namespace fastllm::gpt {
namespace {

FASTLLM_KERNEL void forward_rows(const NormShape& shape, int64_t begin, int64_t end,
                                 const float* x_all, const float* weight, const float* bias,
                                 float* y_all, float* mean_all, float* inverse_all) {
  const int64_t columns = shape.columns;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = x_all + shape.x_at(row);
    float* y = y_all + shape.y_at(row);
    float mean = 0;
    if (shape.centered) {
#pragma omp simd reduction(+ : mean)
      for (int64_t i = 0; i < columns; ++i) mean += x[i];
      mean /= float(columns);
    }
    float square = 0;
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < columns; ++i) square += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1.0f / std::sqrt(square / float(columns) + shape.epsilon);
    if (bias) {
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i)
        y[i] = (x[i] - mean) * inverse * (weight[i] + shape.offset) + bias[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i)
        y[i] = (x[i] - mean) * inverse * (weight[i] + shape.offset);
    }
    if (mean_all) mean_all[row] = mean;
    inverse_all[row] = inverse;
  }
}

// dx = inverse * (g - mean(g) - x_hat * mean(g x_hat)), g = dy * (weight + offset); RMS leaves out
// mean(g).
FASTLLM_KERNEL void backward_rows(const NormShape& shape, int64_t begin, int64_t end,
                                  const float* x_all, const float* weight, const float* mean_all,
                                  const float* inverse_all, const float* dy_all, float* dx_all,
                                  const float* residual_all, float* __restrict d_weight,
                                  float* __restrict d_bias) {
  const int64_t columns = shape.columns;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = x_all + shape.x_at(row);
    const float* dy = dy_all + shape.y_at(row);
    const float mean = mean_all ? mean_all[row] : 0.0f, inverse = inverse_all[row];
    if (d_weight) {
      for (int64_t i = 0; i < columns; ++i) d_weight[i] += dy[i] * ((x[i] - mean) * inverse);
    }
    if (d_bias) {
      for (int64_t i = 0; i < columns; ++i) d_bias[i] += dy[i];
    }
    if (!dx_all) continue;
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < columns; ++i) {
      const float g = dy[i] * (weight[i] + shape.offset);
      sum += g;
      dot += g * (x[i] - mean);
    }
    const float along = dot * inverse * inverse / float(columns);
    const float shift = shape.centered ? sum / float(columns) : 0.0f;
    float* dx = dx_all + shape.y_at(row);
    if (residual_all) {
      const float* residual = residual_all + shape.y_at(row);
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) {
        const float g = dy[i] * (weight[i] + shape.offset);
        dx[i] = residual[i] + inverse * (g - shift - (x[i] - mean) * along);
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) {
        const float g = dy[i] * (weight[i] + shape.offset);
        dx[i] = inverse * (g - shift - (x[i] - mean) * along);
      }
    }
  }
}

}  // namespace

void norm_forward(const NormShape& shape, const float* x, const float* weight, const float* bias,
                  float* y, float* mean, float* inverse) {
  at::parallel_for(0, shape.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    forward_rows(shape, begin, end, x, weight, bias, y, mean, inverse);
  });
}

void norm_backward(const NormShape& shape, const float* x, const float* weight, const float* mean,
                   const float* inverse, const float* dy, const NormGradients& gradients) {
  const int64_t pieces = pieces_of(shape.rows), columns = shape.columns;
  // One sum a piece; each is zeroed by the thread that adds to it.
  const auto sums = [&](const float* wanted) {
    return wanted ? std::make_unique_for_overwrite<float[]>(size_t(pieces * columns)) : nullptr;
  };
  const auto d_weight = sums(gradients.weight), d_bias = sums(gradients.bias);
  const auto zeroed = [&](float* all, int64_t piece) {
    float* const sum = all ? all + piece * columns : nullptr;
    if (sum) std::fill_n(sum, columns, 0.0f);
    return sum;
  };
  at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      backward_rows(shape, piece * kRowsPerPiece, std::min(shape.rows, (piece + 1) * kRowsPerPiece),
                    x, weight, mean, inverse, dy, gradients.x, gradients.residual,
                    zeroed(d_weight.get(), piece), zeroed(d_bias.get(), piece));
    }
  });
  if (gradients.weight)
    row_sum(d_weight.get(), pieces, columns, gradients.overwrite_weight, gradients.weight);
  if (gradients.bias)
    row_sum(d_bias.get(), pieces, columns, gradients.overwrite_bias, gradients.bias);
}

}  // namespace fastllm::gpt
