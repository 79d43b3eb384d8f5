// A thread a token, since rows are a few experts long and few beside the experts' products; what it
// does is written once for both sides (routing_rows.hpp). Sums over tokens: a block an expert, in
// double and in a fixed order, so that bits do not depend on what runs when.
#include "kernels/cuda/common.cuh"
#include "kernels/routing_rows.hpp"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kThreads = 256;

// row(t, first element of the row, first of the choices)
template <class Row>
__global__ __launch_bounds__(kThreads) void each_row(RoutingShape shape, Row row) {
  const int64_t t = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (t < shape.tokens) row(t, t * shape.experts, t * shape.chosen);
}
template <class Row>
void for_rows(const char* kernel, const RoutingShape& shape, cudaStream_t stream, const Row& row) {
  if (shape.tokens == 0) return;
  each_row<<<unsigned((shape.tokens + kThreads - 1) / kThreads), kThreads, 0, stream>>>(shape, row);
  check_launch(kernel);
}

// term(t, expert); out[expert] (=|+=) the sum over tokens.
template <class Term>
__global__ __launch_bounds__(kThreads) void sum_tokens(int64_t tokens, Term term, bool overwrite,
                                                       float* out) {
  double sum = 0;
  for (int64_t t = threadIdx.x; t < tokens; t += kThreads) sum += double(term(t, blockIdx.x));
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = overwrite ? float(sum) : out[blockIdx.x] + float(sum);
}
template <class Term>
void for_experts(const char* kernel, const RoutingShape& shape, bool overwrite, float* out,
                 cudaStream_t stream, const Term& term) {
  if (shape.experts == 0) return;
  sum_tokens<<<unsigned(shape.experts), kThreads, 0, stream>>>(shape.tokens, term, overwrite, out);
  check_launch(kernel);
}

}  // namespace

void choose_largest(const RoutingShape& shape, const float* values, int32_t* index,
                    cudaStream_t stream) {
  for_rows("choose_largest", shape, stream, [=] __device__(int64_t, int64_t row, int64_t choices) {
    routing::choose(shape, values + row, index + choices);
  });
}
void row_softmax(const RoutingShape& shape, const float* values, float* out, cudaStream_t stream) {
  for_rows("row_softmax", shape, stream, [=] __device__(int64_t, int64_t row, int64_t) {
    routing::softmax(shape.experts, values + row, out + row);
  });
}
void row_sigmoid(const RoutingShape& shape, const float* values, float* out, cudaStream_t stream) {
  for_rows("row_sigmoid", shape, stream, [=] __device__(int64_t, int64_t row, int64_t) {
    routing::sigmoid(shape.experts, values + row, out + row);
  });
}
void row_log_sum(const RoutingShape& shape, const float* values, float* out, cudaStream_t stream) {
  for_rows("row_log_sum", shape, stream, [=] __device__(int64_t t, int64_t row, int64_t) {
    out[t] = routing::log_sum(shape.experts, values + row);
  });
}
void take_chosen(const RoutingShape& shape, const float* values, const int32_t* index,
                 float* scores, cudaStream_t stream) {
  for_rows("take_chosen", shape, stream, [=] __device__(int64_t, int64_t row, int64_t choices) {
    routing::take(shape.chosen, values + row, index + choices, scores + choices);
  });
}
void chosen_softmax(const RoutingShape& shape, float* scores, cudaStream_t stream) {
  for_rows("chosen_softmax", shape, stream, [=] __device__(int64_t, int64_t, int64_t choices) {
    routing::softmax(shape.chosen, scores + choices, scores + choices);
  });
}
void add_column_sums(const RoutingShape& shape, const float* values, float* sums,
                     cudaStream_t stream) {
  for_experts("add_column_sums", shape, false, sums, stream,
              [=] __device__(int64_t t, int64_t e) { return values[t * shape.experts + e]; });
}
void add_choices(const RoutingShape& shape, const int32_t* index, float* counts,
                 cudaStream_t stream) {
  for_experts("add_choices", shape, false, counts, stream, [=] __device__(int64_t t, int64_t e) {
    float count = 0;
    for (int64_t j = t * shape.chosen; j < (t + 1) * shape.chosen; ++j) count += index[j] == e;
    return count;
  });
}
void chosen_softmax_backward(const RoutingShape& shape, const int32_t* index, const float* scores,
                             const float* d_scores, float* d_logits, cudaStream_t stream) {
  for_rows("chosen_softmax_backward", shape, stream,
           [=] __device__(int64_t, int64_t row, int64_t choices) {
             routing::chosen_softmax_backward(shape.chosen, index + choices, scores + choices,
                                              d_scores + choices, d_logits + row);
           });
}
void chosen_probability_backward(const RoutingShape& shape, bool sigmoid, const int32_t* index,
                                 const float* probabilities, const float* d_scores, float* d_logits,
                                 cudaStream_t stream) {
  for_rows("chosen_probability_backward", shape, stream,
           [=] __device__(int64_t, int64_t row, int64_t choices) {
             routing::chosen_probability_backward(shape, sigmoid, index + choices,
                                                  probabilities + row, d_scores + choices,
                                                  d_logits + row);
           });
}
void balance_backward(const RoutingShape& shape, const float* probabilities, const float* weights,
                      float scale, float* d_logits, cudaStream_t stream) {
  for_rows("balance_backward", shape, stream, [=] __device__(int64_t, int64_t row, int64_t) {
    routing::balance_backward(shape.experts, probabilities + row, weights, scale, d_logits + row);
  });
}
void z_backward(const RoutingShape& shape, const float* logits, const float* log_sums, float scale,
                float* d_logits, cudaStream_t stream) {
  for_rows("z_backward", shape, stream, [=] __device__(int64_t t, int64_t row, int64_t) {
    routing::z_backward(shape.experts, logits + row, log_sums[t], scale, d_logits + row);
  });
}
void row_exponentials(const RoutingShape& shape, const float* logits, float* out,
                      cudaStream_t stream) {
  for_rows("row_exponentials", shape, stream, [=] __device__(int64_t, int64_t row, int64_t) {
    routing::exponentials(shape.experts, logits + row, out + row);
  });
}
// A row's factor is made again for each expert: a few products instead of memory between two launches.
void balance_rows(const RoutingShape& shape, const float* matrix, const float* column_factors,
                  int64_t all_tokens, float* column_sums, cudaStream_t stream) {
  for_experts("balance_rows", shape, true, column_sums, stream,
              [=] __device__(int64_t t, int64_t e) {
                const float* const row = matrix + t * shape.experts;
                return routing::row_factor(shape.experts, row, column_factors, all_tokens) * row[e];
              });
}
void scale_columns(const RoutingShape& shape, const float* matrix, const float* factors, float* out,
                   cudaStream_t stream) {
  for_rows("scale_columns", shape, stream, [=] __device__(int64_t, int64_t row, int64_t) {
    routing::scale(shape.experts, matrix + row, factors, out + row);
  });
}

}  // namespace fastllm::gpt::cuda
