// The two-layer MLP, plain or gated, from normalized input to the residual stream, as a part of a
// block.
#pragma once

#include "config.hpp"
#include "layers/linear.hpp"

namespace fastllm::gpt {

struct MlpSaved {
  at::Tensor input;  // undefined when not needed or made again (Mlp::needs_input)
  // Before the activation, [tokens, ffn] or gated [tokens, 2 ffn]; backward uses it up. Undefined:
  // made again.
  at::Tensor pre;
  Dropout dropout;
};

class Mlp {
 public:
  // prefix: "layers.1.mlp".
  Mlp(Parameters& parameters, const GptConfig& config, const std::string& prefix);

  // Its part of the width on one of so many tensor ranks.
  void join(const RankGroup& tensor) { ffn_ = whole_ffn_ / tensor.count(); }

  // y = residual + dropout(mlp(x)); all [tokens, hidden], as they are outside the region. saved null:
  // nothing is kept.
  void forward(const TensorRegion& region, const at::Tensor& x, const at::Tensor& residual,
               const Dropout& dropout, const at::Tensor& y, MlpSaved* saved) const;
  // Whether backward reads saved.input. Who calls it puts it there when forward did not keep it.
  bool needs_input() const;
  // dx: gradient of x, written; undefined: not wanted. The residual's gradient is dy itself.
  void backward(const TensorRegion& region, const Gradients& gradients, MlpSaved& saved,
                const at::Tensor& dy, const at::Tensor& dx) const;
  void no_gradient(const Gradients& gradients) const;

 private:
  int64_t whole_ffn_, ffn_;
  bool gated_;
  Activation activation_;
  MlpRecompute recompute_;
  Linear layer_1_, layer_2_;
};

}  // namespace fastllm::gpt
