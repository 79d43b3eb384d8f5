// Causal self-attention between the projections. The tokens of a micro-batch lie in ranges (samples,
// or documents); a query sees the keys of its range up to its own, at most `window` of them.
#pragma once

#include "kernels/random.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt {

struct AttentionShape {
  int64_t heads, groups, head_width;  // heads / groups queries share a key and a value
  double scale;                       // of the scores
  int64_t window = 0;                 // keys a query sees, its own included; 0: all before it
};

// The ends of the ranges, int32 [ranges + 1]: 0 first, never falling, `tokens` last, and none in two
// samples where those are shared. Anything else is refused with a sentence.
void check_ranges(const at::Tensor& ranges, int64_t tokens, const SamplePart& part = {});

// key_value [tokens, 2 * groups * head_width], keys first; ranges as above, checked. query, out
// [queries, heads * head_width], of the tokens that `part` says, sample after sample. Returns what
// backward needs of the softmax: maximum and inverse sum of each row, [heads, 2, queries].
at::Tensor attention_forward(const AttentionShape& shape, const at::Tensor& ranges,
                             const SamplePart& part, const Dropout& dropout,
                             const at::Tensor& query, const at::Tensor& key_value,
                             const at::Tensor& out);
// d_query, d_key_value are written; the latter is the gradient of all keys and values from the
// queries that are here.
void attention_backward(const AttentionShape& shape, const at::Tensor& ranges,
                        const SamplePart& part, const Dropout& dropout, const at::Tensor& query,
                        const at::Tensor& key_value, const at::Tensor& softmax,
                        const at::Tensor& d_out, const at::Tensor& d_query,
                        const at::Tensor& d_key_value);

}  // namespace fastllm::gpt
