// Rows are short (some experts) and few beside the experts' own products: plain loops, over tokens
// in parallel where a row stands for itself. Sums over tokens go in order, in double, so that no bit
// depends on the number of threads.
#include "kernels/routing.hpp"

#include <ATen/Parallel.h>

#include <vector>

#include "kernels/routing_rows.hpp"

namespace fastllm::gpt {
namespace {

constexpr int64_t kGrain = 256;

// row(t, first element of the row, first of the choices)
template <class Row>
void for_rows(const RoutingShape& shape, const Row& row) {
  at::parallel_for(0, shape.tokens, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) row(t, t * shape.experts, t * shape.chosen);
  });
}

}  // namespace

void choose_largest(const RoutingShape& shape, const float* values, int32_t* index) {
  for_rows(shape, [&](int64_t, int64_t row, int64_t choices) {
    routing::choose(shape, values + row, index + choices);
  });
}

void row_softmax(const RoutingShape& shape, const float* values, float* out) {
  for_rows(shape, [&](int64_t, int64_t row, int64_t) {
    routing::softmax(shape.experts, values + row, out + row);
  });
}

void row_sigmoid(const RoutingShape& shape, const float* values, float* out) {
  for_rows(shape, [&](int64_t, int64_t row, int64_t) {
    routing::sigmoid(shape.experts, values + row, out + row);
  });
}

void row_log_sum(const RoutingShape& shape, const float* values, float* out) {
  for_rows(shape, [&](int64_t t, int64_t row, int64_t) {
    out[t] = routing::log_sum(shape.experts, values + row);
  });
}

void take_chosen(const RoutingShape& shape, const float* values, const int32_t* index,
                 float* scores) {
  for_rows(shape, [&](int64_t, int64_t row, int64_t choices) {
    routing::take(shape.chosen, values + row, index + choices, scores + choices);
  });
}

void chosen_softmax(const RoutingShape& shape, float* scores) {
  for_rows(shape, [&](int64_t, int64_t, int64_t choices) {
    routing::softmax(shape.chosen, scores + choices, scores + choices);
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
  for_rows(shape, [&](int64_t, int64_t row, int64_t choices) {
    routing::chosen_softmax_backward(shape.chosen, index + choices, scores + choices,
                                     d_scores + choices, d_logits + row);
  });
}

void chosen_probability_backward(const RoutingShape& shape, bool sigmoid, const int32_t* index,
                                 const float* probabilities, const float* d_scores,
                                 float* d_logits) {
  for_rows(shape, [&](int64_t, int64_t row, int64_t choices) {
    routing::chosen_probability_backward(shape, sigmoid, index + choices, probabilities + row,
                                         d_scores + choices, d_logits + row);
  });
}

void balance_backward(const RoutingShape& shape, const float* probabilities, const float* weights,
                      float scale, float* d_logits) {
  for_rows(shape, [&](int64_t, int64_t row, int64_t) {
    routing::balance_backward(shape.experts, probabilities + row, weights, scale, d_logits + row);
  });
}

void z_backward(const RoutingShape& shape, const float* logits, const float* log_sums, float scale,
                float* d_logits) {
  for_rows(shape, [&](int64_t t, int64_t row, int64_t) {
    routing::z_backward(shape.experts, logits + row, log_sums[t], scale, d_logits + row);
  });
}

void row_exponentials(const RoutingShape& shape, const float* logits, float* out) {
  for_rows(shape, [&](int64_t, int64_t row, int64_t) {
    routing::exponentials(shape.experts, logits + row, out + row);
  });
}

void balance_rows(const RoutingShape& shape, const float* matrix, const float* column_factors,
                  int64_t all_tokens, float* column_sums) {
  std::vector<double> wide(size_t(shape.experts), 0);
  for (int64_t t = 0; t < shape.tokens; ++t) {
    const float* row = matrix + t * shape.experts;
    const float factor = routing::row_factor(shape.experts, row, column_factors, all_tokens);
    for (int64_t e = 0; e < shape.experts; ++e) wide[size_t(e)] += factor * row[e];
  }
  for (int64_t e = 0; e < shape.experts; ++e) column_sums[e] = float(wide[size_t(e)]);
}

void scale_columns(const RoutingShape& shape, const float* matrix, const float* factors,
                   float* out) {
  for_rows(shape, [&](int64_t, int64_t row, int64_t) {
    routing::scale(shape.experts, matrix + row, factors, out + row);
  });
}

}  // namespace fastllm::gpt
