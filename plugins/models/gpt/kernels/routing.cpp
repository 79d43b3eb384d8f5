// Rows are short (some experts) and few beside the experts' own products: plain loops, over tokens
// in parallel where a row stands for itself. Sums over tokens go in order, in double, so that no bit
// depends on the number of threads.
#include "kernels/routing.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace fastllm::gpt {
namespace {

constexpr int64_t kGrain = 256;
constexpr float kLeast = 1e-9f;  // of a sum that is divided by (as the reference has it)

template <class Row>
void for_rows(int64_t rows, const Row& row) {
  at::parallel_for(0, rows, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) row(t);
  });
}

void softmax(int64_t count, const float* values, float* out) {
  const float largest = *std::max_element(values, values + count);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += out[i] = std::exp(values[i] - largest);
  for (int64_t i = 0; i < count; ++i) out[i] /= sum;
}

}  // namespace

void choose_largest(const RoutingShape& shape, const float* values, int32_t* index) {
  for_rows(shape.tokens, [&](int64_t t) {
    const float* row = values + t * shape.experts;
    int32_t* chosen = index + t * shape.chosen;
    int64_t count = 0;
    for (int32_t e = 0; e < shape.experts; ++e) {
      // Kept in order: a value goes before those that it is larger than.
      int64_t place = count;
      while (place > 0 && row[e] > row[chosen[place - 1]]) --place;
      if (place == shape.chosen) continue;
      count = std::min(count + 1, shape.chosen);
      for (int64_t i = count - 1; i > place; --i) chosen[i] = chosen[i - 1];
      chosen[place] = e;
    }
  });
}

void row_softmax(const RoutingShape& shape, const float* values, float* out) {
  for_rows(shape.tokens, [&](int64_t t) {
    softmax(shape.experts, values + t * shape.experts, out + t * shape.experts);
  });
}

void row_sigmoid(const RoutingShape& shape, const float* values, float* out) {
  for_rows(shape.tokens, [&](int64_t t) {
    for (int64_t i = t * shape.experts; i < (t + 1) * shape.experts; ++i)
      out[i] = 1 / (1 + std::exp(-values[i]));
  });
}

void row_log_sum(const RoutingShape& shape, const float* values, float* out) {
  for_rows(shape.tokens, [&](int64_t t) {
    const float* row = values + t * shape.experts;
    const float largest = *std::max_element(row, row + shape.experts);
    float sum = 0;
    for (int64_t e = 0; e < shape.experts; ++e) sum += std::exp(row[e] - largest);
    out[t] = largest + std::log(sum);
  });
}

void take_chosen(const RoutingShape& shape, const float* values, const int32_t* index,
                 float* scores) {
  for_rows(shape.tokens, [&](int64_t t) {
    for (int64_t j = t * shape.chosen; j < (t + 1) * shape.chosen; ++j)
      scores[j] = values[t * shape.experts + index[j]];
  });
}

void chosen_softmax(const RoutingShape& shape, float* scores) {
  for_rows(shape.tokens, [&](int64_t t) {
    softmax(shape.chosen, scores + t * shape.chosen, scores + t * shape.chosen);
  });
}

void add_column_sums(const RoutingShape& shape, const float* values, float* sums) {
  std::vector<double> wide(size_t(shape.experts), 0);
  for (int64_t t = 0; t < shape.tokens; ++t)
    for (int64_t e = 0; e < shape.experts; ++e) wide[size_t(e)] += values[t * shape.experts + e];
  for (int64_t e = 0; e < shape.experts; ++e) sums[e] += float(wide[size_t(e)]);
}

void add_choices(const RoutingShape& shape, const int32_t* index, float* counts) {
  std::vector<int64_t> whole(size_t(shape.experts), 0);
  for (int64_t j = 0; j < shape.tokens * shape.chosen; ++j) ++whole[size_t(index[j])];
  for (int64_t e = 0; e < shape.experts; ++e) counts[e] += float(whole[size_t(e)]);
}

void chosen_softmax_backward(const RoutingShape& shape, const int32_t* index, const float* scores,
                             const float* d_scores, float* d_logits) {
  for_rows(shape.tokens, [&](int64_t t) {
    const int64_t first = t * shape.chosen, last = first + shape.chosen;
    float mean = 0;
    for (int64_t j = first; j < last; ++j) mean += scores[j] * d_scores[j];
    for (int64_t j = first; j < last; ++j)
      d_logits[t * shape.experts + index[j]] += scores[j] * (d_scores[j] - mean);
  });
}

void chosen_probability_backward(const RoutingShape& shape, bool sigmoid, const int32_t* index,
                                 const float* probabilities, const float* d_scores,
                                 float* d_logits) {
  for_rows(shape.tokens, [&](int64_t t) {
    const float* p = probabilities + t * shape.experts;
    float* d = d_logits + t * shape.experts;
    float mean = 0;
    for (int64_t j = t * shape.chosen; j < (t + 1) * shape.chosen; ++j) {
      const int32_t e = index[j];
      d[e] += p[e] * (sigmoid ? 1 - p[e] : 1) * d_scores[j];
      mean += p[e] * d_scores[j];
    }
    if (sigmoid) return;
    for (int64_t e = 0; e < shape.experts; ++e) d[e] -= p[e] * mean;
  });
}

void balance_backward(const RoutingShape& shape, const float* probabilities, const float* weights,
                      float scale, float* d_logits) {
  for_rows(shape.tokens, [&](int64_t t) {
    const float* p = probabilities + t * shape.experts;
    float* d = d_logits + t * shape.experts;
    float mean = 0;
    for (int64_t e = 0; e < shape.experts; ++e) mean += p[e] * weights[e];
    for (int64_t e = 0; e < shape.experts; ++e) d[e] += scale * p[e] * (weights[e] - mean);
  });
}

void z_backward(const RoutingShape& shape, const float* logits, const float* log_sums, float scale,
                float* d_logits) {
  for_rows(shape.tokens, [&](int64_t t) {
    for (int64_t i = t * shape.experts; i < (t + 1) * shape.experts; ++i)
      d_logits[i] += 2 * scale * log_sums[t] * std::exp(logits[i] - log_sums[t]);
  });
}

void row_exponentials(const RoutingShape& shape, const float* logits, float* out) {
  for_rows(shape.tokens, [&](int64_t t) {
    const float* row = logits + t * shape.experts;
    const float largest = *std::max_element(row, row + shape.experts);
    for (int64_t e = 0; e < shape.experts; ++e)
      out[t * shape.experts + e] = std::exp(row[e] - largest);
  });
}

void balance_rows(const RoutingShape& shape, const float* matrix, const float* column_factors,
                  int64_t all_tokens, float* column_sums) {
  std::vector<double> wide(size_t(shape.experts), 0);
  for (int64_t t = 0; t < shape.tokens; ++t) {
    const float* row = matrix + t * shape.experts;
    float sum = 0;
    for (int64_t e = 0; e < shape.experts; ++e) sum += row[e] * column_factors[e];
    const float factor = 1 / float(all_tokens) / (sum + kLeast);
    for (int64_t e = 0; e < shape.experts; ++e) wide[size_t(e)] += factor * row[e];
  }
  for (int64_t e = 0; e < shape.experts; ++e) column_sums[e] = float(wide[size_t(e)]);
}

void scale_columns(const RoutingShape& shape, const float* matrix, const float* factors,
                   float* out) {
  for_rows(shape.tokens, [&](int64_t t) {
    for (int64_t e = 0; e < shape.experts; ++e)
      out[t * shape.experts + e] = matrix[t * shape.experts + e] * factors[e];
  });
}

}  // namespace fastllm::gpt
