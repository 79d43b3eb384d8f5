// Which experts a token goes to and with what weight, from the router's logits; the losses that keep
// experts in balance; and the gradients of all three. Matrices are [tokens, experts], rows
// contiguous; a token's choice is `chosen` entries. Top-k after Shazeer et al. 2017 ("Outrageously
// large neural networks") with the softmax over the chosen as Mixtral has it; the balancing loss after
// Fedus et al. 2021 (Switch); the z-loss after Zoph et al. 2022 (ST-MoE); Sinkhorn balancing after
// Clark et al. 2022 ("Unified scaling laws for routed language models").
#pragma once

#include <cstdint>

namespace fastllm::gpt {

struct RoutingShape {
  int64_t tokens, experts, chosen;
};

// index [tokens, chosen]: the experts of the largest values of each row, descending; of equal ones
// the lower number first.
void choose_largest(const RoutingShape& shape, const float* values, int32_t* index);

// out [tokens, experts]: softmax of each row, or the logistic function of each element. May be
// values' memory.
void row_softmax(const RoutingShape& shape, const float* values, float* out);
void row_sigmoid(const RoutingShape& shape, const float* values, float* out);
// out [tokens]: log of the sum of each row's exponentials.
void row_log_sum(const RoutingShape& shape, const float* values, float* out);

// scores [tokens, chosen] = values at index.
void take_chosen(const RoutingShape& shape, const float* values, const int32_t* index,
                 float* scores);
// In place: softmax over `chosen` entries of each row.
void chosen_softmax(const RoutingShape& shape, float* scores);

// Column sums over the tokens, added to what is there: probabilities by expert, and how often each
// expert is among the chosen.
void add_column_sums(const RoutingShape& shape, const float* values, float* sums);
void add_choices(const RoutingShape& shape, const int32_t* index, float* counts);

// The gradients of the logits; each adds to d_logits [tokens, experts].
// Of scores = chosen_softmax(logits at index).
void chosen_softmax_backward(const RoutingShape& shape, const int32_t* index, const float* scores,
                             const float* d_scores, float* d_logits);
// Of scores = p at index, where p = row_softmax(logits) or row_sigmoid(logits).
void chosen_probability_backward(const RoutingShape& shape, bool sigmoid, const int32_t* index,
                                 const float* probabilities, const float* d_scores,
                                 float* d_logits);
// Of scale * sum over tokens and experts of p * weights[expert], p = row_softmax(logits).
void balance_backward(const RoutingShape& shape, const float* probabilities, const float* weights,
                      float scale, float* d_logits);
// Of scale * sum over tokens of log_sum^2.
void z_backward(const RoutingShape& shape, const float* logits, const float* log_sums, float scale,
                float* d_logits);

// out [tokens, experts] = exp(logits - the row's largest).
void row_exponentials(const RoutingShape& shape, const float* logits, float* out);
// One round of balancing a matrix: rows get factors that bring them to 1 / all_tokens given the
// columns' factors; column_sums [experts] are then the sums of the columns over these tokens.
void balance_rows(const RoutingShape& shape, const float* matrix, const float* column_factors,
                  int64_t all_tokens, float* column_sums);
// out = matrix with each column times its factor. May be the matrix's memory.
void scale_columns(const RoutingShape& shape, const float* matrix, const float* factors,
                   float* out);

}  // namespace fastllm::gpt
