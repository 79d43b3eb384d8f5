// Self-attention with its projections, from normalized input to the residual stream, as a part of a
// block.
#pragma once

#include "layers/causal_attention.hpp"
#include "layers/linear.hpp"
#include "layers/rotary.hpp"

namespace fastllm::gpt {

struct AttentionSaved {
  AttentionShape shape;
  int64_t length = 0;    // of the whole sequence
  at::Tensor input;      // undefined when neither query nor key_value needs a weight gradient
  at::Tensor positions;  // undefined without rotary embedding
  at::Tensor query, key_value;  // after rotation
  at::Tensor out;  // before the output projection; undefined when dense's weight needs no gradient
  at::Tensor softmax;  // of attention_forward
};

class Attention {
 public:
  // prefix: "layers.1.self_attn". rotary is the model's and outlives this.
  Attention(Parameters& parameters, const GptConfig& config, const std::string& prefix,
            Rotary& rotary);

  // y = residual + attention(x); all [tokens, hidden]. saved null: nothing is kept.
  void forward(int64_t batch, int64_t sequence, int64_t length, const at::Tensor& x,
               const at::Tensor& positions, const at::Tensor& residual, const at::Tensor& y,
               AttentionSaved* saved);
  // dx: gradient of x, written; undefined: not wanted. The residual's gradient is dy itself.
  void backward(const Gradients& gradients, const AttentionSaved& saved, const at::Tensor& dy,
                const at::Tensor& dx);
  bool input_trainable() const { return query_.trainable() || key_value_.trainable(); }
  bool trainable() const { return input_trainable() || dense_.trainable(); }
  void no_gradient(const Gradients& gradients) const;

 private:
  void rotate(const at::Tensor& query, const at::Tensor& key_value, const at::Tensor& positions,
              int64_t length, bool inverse);

  int64_t heads_, groups_, head_width_;
  double scale_;
  Rotary& rotary_;
  Linear query_, key_value_, dense_;
};

}  // namespace fastllm::gpt
