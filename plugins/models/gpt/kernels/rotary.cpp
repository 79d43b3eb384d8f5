// One pass over the heads of each token.
// A turn is an orthogonal matrix (times a factor, in YaRN), so its backward, the transpose, is the
// turn by the opposite angle.
#include "kernels/rotary.hpp"

#include <ATen/Parallel.h>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

FASTLLM_KERNEL void rotate_tokens(const RotaryShape& shape, int64_t begin, int64_t end,
                                  const float* table, const int64_t* positions, float sign,
                                  float* values) {
  const int64_t half = shape.head_width / 2;
  for (int64_t token = begin; token < end; ++token) {
    const float* cosine = table + positions[token] * shape.head_width;
    const float* sine = cosine + half;
    float* head = values + token * shape.stride;
    for (int64_t h = 0; h < shape.heads; ++h, head += shape.head_width) {
      if (shape.interleaved) {
#pragma omp simd
        for (int64_t i = 0; i < half; ++i) {
          const float a = head[2 * i], b = head[2 * i + 1], s = sign * sine[i];
          head[2 * i] = a * cosine[i] - b * s;
          head[2 * i + 1] = b * cosine[i] + a * s;
        }
      } else {
#pragma omp simd
        for (int64_t i = 0; i < half; ++i) {
          const float a = head[i], b = head[half + i], s = sign * sine[i];
          head[i] = a * cosine[i] - b * s;
          head[half + i] = b * cosine[i] + a * s;
        }
      }
    }
  }
}

}  // namespace

void rotate(const RotaryShape& shape, const float* table, const int64_t* positions, bool backward,
            float* values) {
  at::parallel_for(0, shape.tokens, kRowGrain, [&](int64_t begin, int64_t end) {
    rotate_tokens(shape, begin, end, table, positions, backward ? -1.0f : 1.0f, values);
  });
}

}  // namespace fastllm::gpt
