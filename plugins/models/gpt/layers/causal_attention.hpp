// Causal self-attention between the projections: what a query sees is all keys at or before it, in
// its sample.
#pragma once

#include "layers/layer.hpp"

namespace fastllm::gpt {

struct AttentionShape {
  int64_t batch, sequence, heads, groups,
      head_width;  // heads / groups queries share a key and a value
  double scale;    // of the scores
};

// query, out [tokens, heads * head_width]; key_value [tokens, 2 * groups * head_width], keys first.
// Returns what backward needs of the softmax: maximum and inverse sum of each row,
// [batch, heads, 2, sequence].
at::Tensor attention_forward(const AttentionShape& shape, const at::Tensor& query,
                             const at::Tensor& key_value, const at::Tensor& out);
// d_query, d_key_value are written.
void attention_backward(const AttentionShape& shape, const at::Tensor& query,
                        const at::Tensor& key_value, const at::Tensor& softmax,
                        const at::Tensor& d_out, const at::Tensor& d_query,
                        const at::Tensor& d_key_value);

}  // namespace fastllm::gpt
