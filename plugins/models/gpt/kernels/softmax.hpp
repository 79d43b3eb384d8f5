// The softmax of attention over blocks of scores, and its backward: one read and one write of the
// block each. A row is a query, a column a key; a row sees a run of columns. Scores it does not see
// may hold anything; they become 0 for the products that follow.
#pragma once

#include <cstdint>

#include "kernels/random.hpp"

namespace fastllm::gpt {

struct ScoreBlock {
  int64_t rows, keys;
  int64_t stride;    // from one row to the next
  int64_t diagonal;  // the column of the first row's own position; the next row's is one further
  int64_t window;    // columns a row sees, its own the last of them; at least 1
  float scale;       // of the scores
  Dropout dropout;
  // The dropout's number for row r and column c is first_number + r * numbers_a_row + c.
  uint64_t first_number, numbers_a_row;
};

// By row: weight = exp(scale * (score - maximum)) * inverse_sum.
struct SoftmaxRows {
  float *maximum, *inverse_sum;
};

// scores [rows, keys] become weights without their inverse_sum, some dropped; fills rows.
void attention_softmax(const ScoreBlock& block, float* scores, const SoftmaxRows& rows);

// With the scores made again: they become the weights as they met the values (some dropped), and
// d_weights [rows, keys], the gradient of those, becomes the gradient of the unscaled scores.
void attention_softmax_backward(const ScoreBlock& block, const SoftmaxRows& rows, float* scores,
                                float* d_weights);

// to = from, each row times its factor if there are any (null: none); both [rows, width].
void store_rows(int64_t rows, int64_t width, const float* from, int64_t from_stride,
                const float* factors, float* to, int64_t to_stride);

}  // namespace fastllm::gpt
