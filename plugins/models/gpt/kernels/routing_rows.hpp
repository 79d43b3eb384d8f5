// What routing does with one token, for the processor and for a GPU alike: rows are some experts long,
// and one thread walks one.
#pragma once

#include <cmath>

#include "kernels/routing.hpp"

#ifdef __CUDACC__
#define FASTLLM_BOTH_SIDES __host__ __device__ inline
#else
#define FASTLLM_BOTH_SIDES inline
#endif

namespace fastllm::gpt::routing {

FASTLLM_BOTH_SIDES float largest(int64_t count, const float* values) {
  float result = values[0];
  for (int64_t i = 1; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

// values may be out.
FASTLLM_BOTH_SIDES void softmax(int64_t count, const float* values, float* out) {
  const float most = largest(count, values);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += out[i] = std::exp(values[i] - most);
  for (int64_t i = 0; i < count; ++i) out[i] /= sum;
}

FASTLLM_BOTH_SIDES void sigmoid(int64_t count, const float* values, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = 1 / (1 + std::exp(-values[i]));
}

FASTLLM_BOTH_SIDES float log_sum(int64_t count, const float* values) {
  const float most = largest(count, values);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(values[i] - most);
  return most + std::log(sum);
}

FASTLLM_BOTH_SIDES void exponentials(int64_t count, const float* values, float* out) {
  const float most = largest(count, values);
  for (int64_t i = 0; i < count; ++i) out[i] = std::exp(values[i] - most);
}

// Kept in order: a value goes before those that it is larger than.
FASTLLM_BOTH_SIDES void choose(const RoutingShape& shape, const float* row, int32_t* chosen) {
  int64_t count = 0;
  for (int32_t e = 0; e < int32_t(shape.experts); ++e) {
    int64_t place = count;
    while (place > 0 && row[e] > row[chosen[place - 1]]) --place;
    if (place == shape.chosen) continue;
    if (count < shape.chosen) ++count;
    for (int64_t i = count - 1; i > place; --i) chosen[i] = chosen[i - 1];
    chosen[place] = e;
  }
}

FASTLLM_BOTH_SIDES void take(int64_t chosen, const float* row, const int32_t* index,
                             float* scores) {
  for (int64_t j = 0; j < chosen; ++j) scores[j] = row[index[j]];
}

FASTLLM_BOTH_SIDES void chosen_softmax_backward(int64_t chosen, const int32_t* index,
                                                const float* scores, const float* d_scores,
                                                float* d_logits) {
  float mean = 0;
  for (int64_t j = 0; j < chosen; ++j) mean += scores[j] * d_scores[j];
  for (int64_t j = 0; j < chosen; ++j) d_logits[index[j]] += scores[j] * (d_scores[j] - mean);
}

FASTLLM_BOTH_SIDES void chosen_probability_backward(const RoutingShape& shape, bool sigmoid,
                                                    const int32_t* index, const float* p,
                                                    const float* d_scores, float* d_logits) {
  float mean = 0;
  for (int64_t j = 0; j < shape.chosen; ++j) {
    const int32_t e = index[j];
    d_logits[e] += p[e] * (sigmoid ? 1 - p[e] : 1) * d_scores[j];
    mean += p[e] * d_scores[j];
  }
  if (sigmoid) return;
  for (int64_t e = 0; e < shape.experts; ++e) d_logits[e] -= p[e] * mean;
}

FASTLLM_BOTH_SIDES void balance_backward(int64_t experts, const float* p, const float* weights,
                                         float scale, float* d_logits) {
  float mean = 0;
  for (int64_t e = 0; e < experts; ++e) mean += p[e] * weights[e];
  for (int64_t e = 0; e < experts; ++e) d_logits[e] += scale * p[e] * (weights[e] - mean);
}

FASTLLM_BOTH_SIDES void z_backward(int64_t experts, const float* logits, float log_sum, float scale,
                                   float* d_logits) {
  for (int64_t e = 0; e < experts; ++e)
    d_logits[e] += 2 * scale * log_sum * std::exp(logits[e] - log_sum);
}

// What a row is multiplied by to have its share, given the columns' factors. 1e-9 as the reference has it.
FASTLLM_BOTH_SIDES float row_factor(int64_t experts, const float* row, const float* column_factors,
                                    int64_t all_tokens) {
  float sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += row[e] * column_factors[e];
  return 1 / float(all_tokens) / (sum + 1e-9f);
}

FASTLLM_BOTH_SIDES void scale(int64_t experts, const float* row, const float* factors, float* out) {
  for (int64_t e = 0; e < experts; ++e) out[e] = row[e] * factors[e];
}

}  // namespace fastllm::gpt::routing
