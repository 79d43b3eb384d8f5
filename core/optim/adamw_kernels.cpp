// Threads take chunks, which are cut once, so that sums have one order. Compiled without contraction:
// all instruction sets give the same bits.
#include "core/optim/adamw_kernels.hpp"

#include <cmath>

#include "core/base/clones.hpp"

namespace fastllm::optim {
namespace {

constexpr int kLanes = 16;  // sums kept apart inside a chunk, whatever the vector width

// A float times itself is exact in double, so only the order of the sums matters, and that is
// fixed.
FASTLLM_CLONES double squares_of(const float* g, int64_t n) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) lanes[k] += double(g[i + k]) * double(g[i + k]);
  for (int k = 0; i < n; ++i, ++k) lanes[k] += double(g[i]) * double(g[i]);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

FASTLLM_CLONES void update(float* __restrict p, float* __restrict m, float* __restrict v,
                           const float* __restrict grad, int64_t n, const AdamWFactors& factors) {
  const AdamWFactors f = factors;
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * f.clip;
    m[i] = f.beta_1 * m[i] + f.one_minus_beta_1 * g;
    v[i] = f.beta_2 * v[i] + f.one_minus_beta_2 * (g * g);
    p[i] = p[i] * f.keep - f.step * m[i] / (std::sqrt(v[i]) * f.root + f.epsilon);
  }
}

}  // namespace

void sum_of_squares(std::span<const AdamWChunk> chunks, const float* grads, double* squares) {
  const int64_t count = int64_t(chunks.size());
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < count; ++c)
    squares[c] = squares_of(grads + chunks[c].state_begin, chunks[c].elements);
}

void adamw_update(std::span<const AdamWChunk> chunks, std::span<const AdamWFactors> groups,
                  const AdamWArrays& arrays) {
  const int64_t count = int64_t(chunks.size());
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < count; ++c) {
    const AdamWChunk& chunk = chunks[c];
    update(chunk.weights, arrays.exp_avgs + chunk.state_begin,
           arrays.exp_avgs_sq + chunk.state_begin, arrays.grads + chunk.state_begin, chunk.elements,
           groups[chunk.group]);
  }
}

}  // namespace fastllm::optim
