// Blocks of queries against all keys they may see, as library products; keys after a block are
// never touched, which halves the work. A head of a sample is one task of one thread, so the bits
// do not depend on the number of threads. The scores of one block exist at a time; backward makes
// them again.
#include "layers/causal_attention.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "kernels/softmax.hpp"

namespace fastllm::gpt {
namespace {

constexpr int64_t kBlock = 128;  // queries in a block

// The tensors of one head of one sample: views [sequence, head_width] of rows that hold all heads.
class HeadView {
 public:
  HeadView(const AttentionShape& shape, int64_t task)
      : s_(shape), sample_(task / shape.heads), head_(task % shape.heads) {}

  at::Tensor query(const at::Tensor& rows) const { return columns(rows, head_); }
  at::Tensor key(const at::Tensor& rows) const { return columns(rows, group()); }
  at::Tensor value(const at::Tensor& rows) const { return columns(rows, s_.groups + group()); }
  // Its part of softmax [batch, heads, 2, sequence], from a position on.
  SoftmaxRows rows(const at::Tensor& softmax, int64_t first) const {
    float* maximum =
        softmax.mutable_data_ptr<float>() + (sample_ * s_.heads + head_) * 2 * s_.sequence + first;
    return {.maximum = maximum, .inverse_sum = maximum + s_.sequence};
  }

 private:
  int64_t group() const { return head_ / (s_.heads / s_.groups); }
  at::Tensor columns(const at::Tensor& rows, int64_t index) const {
    return rows.narrow(0, sample_ * s_.sequence, s_.sequence)
        .narrow(1, index * s_.head_width, s_.head_width);
  }
  const AttentionShape& s_;
  int64_t sample_, head_;
};

ScoreBlock block_at(const AttentionShape& shape, int64_t first) {
  const int64_t rows = std::min(kBlock, shape.sequence - first);
  return {.rows = rows, .keys = first + rows, .first = first, .scale = float(shape.scale)};
}
// The beginning of a buffer as [rows, keys].
at::Tensor scores_of(const at::Tensor& buffer, const ScoreBlock& block) {
  return buffer.narrow(0, 0, block.rows * block.keys).view({block.rows, block.keys});
}

}  // namespace

at::Tensor attention_forward(const AttentionShape& shape, const at::Tensor& query,
                             const at::Tensor& key_value, const at::Tensor& out) {
  const at::Tensor softmax = empty({shape.batch, shape.heads, 2, shape.sequence});
  at::parallel_for(0, shape.batch * shape.heads, 1, [&](int64_t begin, int64_t end) {
    const sdk::ComputeGuard guard;  // of this thread
    const at::Tensor buffer = empty({std::min(kBlock, shape.sequence) * shape.sequence});
    for (int64_t task = begin; task < end; ++task) {
      const HeadView head(shape, task);
      const at::Tensor q = head.query(query), k = head.key(key_value), v = head.value(key_value);
      const at::Tensor o = head.query(out);
      for (int64_t first = 0; first < shape.sequence; first += kBlock) {
        const ScoreBlock block = block_at(shape, first);
        const SoftmaxRows rows = head.rows(softmax, first);
        at::Tensor weights = scores_of(buffer, block), result = o.narrow(0, first, block.rows);
        at::mm_out(weights, q.narrow(0, first, block.rows), k.narrow(0, 0, block.keys).t());
        causal_softmax(block, weights.mutable_data_ptr<float>(), rows);
        at::mm_out(result, weights, v.narrow(0, 0, block.keys));
        scale_rows(block.rows, shape.head_width, result.stride(0), rows.inverse_sum,
                   result.mutable_data_ptr<float>());
      }
    }
  });
  return softmax;
}

void attention_backward(const AttentionShape& shape, const at::Tensor& query,
                        const at::Tensor& key_value, const at::Tensor& softmax,
                        const at::Tensor& d_out, const at::Tensor& d_query,
                        const at::Tensor& d_key_value) {
  // Heads that share a key each write a gradient of it of their own, added up at the end.
  const int64_t tokens = shape.batch * shape.sequence, shared = shape.heads / shape.groups;
  const at::Tensor own =
      shared == 1 ? d_key_value : empty({tokens, 2 * shape.heads * shape.head_width});
  AttentionShape own_shape = shape;
  own_shape.groups = shape.heads;

  at::parallel_for(0, shape.batch * shape.heads, 1, [&](int64_t begin, int64_t end) {
    const sdk::ComputeGuard guard;
    const int64_t size = std::min(kBlock, shape.sequence) * shape.sequence;
    const at::Tensor buffer = empty({size}), d_buffer = empty({size});
    for (int64_t task = begin; task < end; ++task) {
      const HeadView head(shape, task), own_head(own_shape, task);
      const at::Tensor q = head.query(query), k = head.key(key_value), v = head.value(key_value);
      const at::Tensor d_q = head.query(d_query), d_o = head.query(d_out);
      const at::Tensor d_k = own_head.key(own), d_v = own_head.value(own);
      // The last block sees all keys and writes their gradients; those before it add to them.
      const int64_t last = (shape.sequence - 1) / kBlock * kBlock;
      for (int64_t first = last; first >= 0; first -= kBlock) {
        const ScoreBlock block = block_at(shape, first);
        const double beta = first == last ? 0 : 1;
        const auto queries = [&](const at::Tensor& all) {
          return all.narrow(0, first, block.rows);
        };
        const auto seen = [&](const at::Tensor& all) { return all.narrow(0, 0, block.keys); };
        at::Tensor d_q_block = queries(d_q), d_k_seen = seen(d_k), d_v_seen = seen(d_v);
        at::Tensor weights = scores_of(buffer, block), d_weights = scores_of(d_buffer, block);

        at::mm_out(weights, queries(q), seen(k).t());
        causal_weights(block, weights.mutable_data_ptr<float>(), head.rows(softmax, first));
        at::addmm_out(d_v_seen, d_v_seen, weights.t(), queries(d_o), beta);
        at::mm_out(d_weights, queries(d_o), seen(v).t());
        causal_softmax_backward(block, weights.const_data_ptr<float>(),
                                d_weights.mutable_data_ptr<float>());
        at::mm_out(d_q_block, d_weights, seen(k));
        at::addmm_out(d_k_seen, d_k_seen, d_weights.t(), queries(q), beta);
      }
    }
  });
  if (shared > 1) {
    at::Tensor sum = d_key_value.view({tokens, 2, shape.groups, shape.head_width});
    at::sum_out(sum, own.view({tokens, 2, shape.groups, shared, shape.head_width}),
                at::IntArrayRef{3});
  }
}

}  // namespace fastllm::gpt
