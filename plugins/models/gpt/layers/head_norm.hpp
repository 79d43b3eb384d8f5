// RMS normalization of every head of queries or keys, with one weight for all heads: as Qwen3 has
// it, before the rotary embedding. In place, since the projection's own values are wanted nowhere
// else.
#pragma once

#include "config.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt {

struct HeadNormSaved {
  at::Tensor input;    // [tokens, heads * head_width]
  at::Tensor inverse;  // of each head's root mean square, [tokens * heads]
};

class HeadNorm {
 public:
  // prefix: "layers.1.self_attn.query_norm".
  HeadNorm(Parameters& parameters, const GptConfig& config, const std::string& prefix,
           int64_t heads);

  // On a rank that has so many of the heads.
  void set_heads(int64_t heads) { heads_ = heads; }

  // Of values [tokens, >= heads * head_width], the heads first. saved null: nothing is kept.
  void forward(const at::Tensor& values, HeadNormSaved* saved) const;
  // d_values, shaped like values: the gradient of the result becomes that of the input.
  void backward(const Gradients& gradients, const HeadNormSaved& saved,
                const at::Tensor& d_values) const;
  bool trainable() const { return parameters_.trainable(weight_); }
  void no_gradient(const Gradients& gradients) const { gradients.none(weight_); }

 private:
  struct NormShape shape(int64_t tokens, int64_t x_stride, int64_t y_stride) const;

  const Parameters& parameters_;
  NormConfig config_;
  int64_t heads_, width_;
  int weight_;
};

}  // namespace fastllm::gpt
