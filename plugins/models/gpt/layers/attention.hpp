// Self-attention with its projections, from normalized input to the residual stream, as a part of a
// block.
#pragma once

#include "layers/causal_attention.hpp"
#include "layers/head_norm.hpp"
#include "layers/linear.hpp"
#include "layers/rotary.hpp"

namespace fastllm::gpt {

// What a micro-batch says about its tokens, for all blocks.
struct AttentionContext {
  at::Tensor ranges;     // int32 [ranges + 1], checked
  at::Tensor positions;  // int64 [tokens here]; undefined without rotary embedding
  int64_t length = 0;    // of the whole sequence
  SamplePart part;       // of each sample, the tokens here
  Dropout dropout;       // of attention weights
};

struct AttentionSaved {
  AttentionContext context;
  at::Tensor input;  // outside; undefined when neither query nor key_value needs a weight gradient
  HeadNormSaved query_norm, key_norm;
  at::Tensor query, key_value;  // after normalization and rotation; the latter of whole samples
  at::Tensor out;  // before the output projection; undefined when dense's weight needs no gradient
  at::Tensor softmax;  // of attention_forward
  Dropout dropout;     // of what is added to the residual stream
};

class Attention {
 public:
  // prefix: "layers.1.self_attn"; window: keys a query sees, 0: all. rotary is the model's and
  // outlives this.
  Attention(Parameters& parameters, const GptConfig& config, const std::string& prefix,
            int64_t window, Rotary& rotary);

  // Its heads on one of so many tensor ranks; keys and values on all ranks that share a sample.
  // Borrowed.
  void join(const Parallel& parallel);

  // y = residual + dropout(attention(x)); all [tokens, hidden], as they are outside the region. saved
  // null: nothing is kept.
  void forward(const TensorRegion& region, const AttentionContext& context, const at::Tensor& x,
               const at::Tensor& residual, const Dropout& dropout, const at::Tensor& y,
               AttentionSaved* saved);
  // dx: gradient of x, written; undefined: not wanted. The residual's gradient is dy itself.
  void backward(const TensorRegion& region, const Gradients& gradients, const AttentionSaved& saved,
                const at::Tensor& dy, const at::Tensor& dx);
  bool trainable() const { return input_trainable() || dense_.trainable(); }
  void no_gradient(const Gradients& gradients) const;

 private:
  // Of anything before the product of queries and keys.
  bool input_trainable() const;
  void rotate(const AttentionContext& context, const at::Tensor& query, const at::Tensor& key_value,
              bool backward);

  // Keys and values of whole samples, from those of the tokens here; and the gradient of the latter,
  // from what the queries of each rank give to the former.
  at::Tensor of_samples(const SamplePart& part, const at::Tensor& key_value) const;
  at::Tensor of_tokens(const SamplePart& part, const at::Tensor& d_key_value) const;

  const RankGroup* sequence_data_ = nullptr;  // null: alone
  int64_t first_head_ = 0, whole_heads_, whole_groups_;
  AttentionShape shape_;  // of this rank
  Rotary& rotary_;
  Linear query_, key_value_;
  std::optional<HeadNorm> query_norm_, key_norm_;
  Linear dense_;
};

}  // namespace fastllm::gpt
