// The library's causal attention, one call a sample. Queries that share a key form the second of
// its two head dimensions, along which keys and values have stride 0: nothing is repeated in
// memory. The library returns a gradient of keys for each query head; they are added up here.
#include "layers/causal_attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/sum.h>

namespace fastllm::gpt {
namespace {

// One sample's rows of [tokens, n * head_width], n = groups * shared, as [groups, shared, sequence,
// head_width].
at::Tensor query_heads(const AttentionShape& s, const at::Tensor& rows, int64_t sample) {
  return rows.narrow(0, sample * s.sequence, s.sequence)
      .view({s.sequence, s.groups, s.heads / s.groups, s.head_width})
      .permute({1, 2, 0, 3});
}
// Keys (part 0) or values (part 1) of a sample, [groups, sequence, head_width].
at::Tensor key_heads(const AttentionShape& s, const at::Tensor& rows, int64_t sample,
                     int64_t part) {
  return rows.narrow(0, sample * s.sequence, s.sequence)
      .view({s.sequence, 2, s.groups, s.head_width})
      .select(1, part)
      .transpose(0, 1);
}
at::Tensor shared(const AttentionShape& s, const at::Tensor& keys) {
  return keys.unsqueeze(1).expand({s.groups, s.heads / s.groups, s.sequence, s.head_width});
}

}  // namespace

Tensors attention_forward(const AttentionShape& shape, const at::Tensor& query,
                          const at::Tensor& key_value, const at::Tensor& out) {
  Tensors log_sums;
  for (int64_t sample = 0; sample < shape.batch; ++sample) {
    auto [result, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        query_heads(shape, query, sample), shared(shape, key_heads(shape, key_value, sample, 0)),
        shared(shape, key_heads(shape, key_value, sample, 1)), 0.0, true, {}, shape.scale);
    query_heads(shape, out, sample).copy_(result);
    log_sums.push_back(std::move(log_sum));
  }
  return log_sums;
}

void attention_backward(const AttentionShape& shape, const at::Tensor& query,
                        const at::Tensor& key_value, const at::Tensor& out, const Tensors& log_sums,
                        const at::Tensor& d_out, const at::Tensor& d_query,
                        const at::Tensor& d_key_value) {
  for (int64_t sample = 0; sample < shape.batch; ++sample) {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        query_heads(shape, d_out, sample), query_heads(shape, query, sample),
        shared(shape, key_heads(shape, key_value, sample, 0)),
        shared(shape, key_heads(shape, key_value, sample, 1)), query_heads(shape, out, sample),
        log_sums[size_t(sample)], 0.0, true, {}, shape.scale);
    query_heads(shape, d_query, sample).copy_(dq);
    at::Tensor d_key = key_heads(shape, d_key_value, sample, 0),
               d_value = key_heads(shape, d_key_value, sample, 1);
    at::sum_out(d_key, dk, at::IntArrayRef{1});
    at::sum_out(d_value, dv, at::IntArrayRef{1});
  }
}

}  // namespace fastllm::gpt
