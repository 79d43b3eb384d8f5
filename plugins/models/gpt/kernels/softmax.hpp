// Causal softmax over blocks of attention scores, and its backward. Row r of a block is the query
// at position first + r; it sees the keys 0 .. first + r. Columns beyond are set to 0.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

struct ScoreBlock {
  int64_t rows, keys;  // keys: of the whole block, at least first + rows
  int64_t first;       // position of the first row's query
  float scale;         // of the scores
};

// By row: weight = exp(scale * (score - maximum)) * inverse_sum.
struct SoftmaxRows {
  float *maximum, *inverse_sum;
};

// scores [rows, keys] become weights without their inverse_sum; fills rows.
void causal_softmax(const ScoreBlock& block, float* scores, const SoftmaxRows& rows);

// scores become the whole weights again, to the same bits.
void causal_weights(const ScoreBlock& block, float* scores, const SoftmaxRows& rows);

// d_weights [rows, keys] become the gradient of the scores.
void causal_softmax_backward(const ScoreBlock& block, const float* weights, float* d_weights);

// Row times its factor, in place; rows `stride` apart.
void scale_rows(int64_t rows, int64_t width, int64_t stride, const float* factors, float* values);

}  // namespace fastllm::gpt
