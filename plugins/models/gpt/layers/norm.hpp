// A normalization with its parameters, as a part of a layer.
#pragma once

#include "config.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt {

// Statistics of the rows; the input itself is kept by whoever owns it.
struct NormSaved {
  at::Tensor mean, inverse;
};

// The declaration of a norm's weight (around 1, or 0 when zero-centered) or bias (around 0).
sdk::Parameter norm_parameter(const GptConfig& config, const std::string& name, int64_t width,
                              double value);

class Norm {
 public:
  // prefix: "layers.1.norm_1".
  Norm(Parameters& parameters, const GptConfig& config, const std::string& prefix);

  // x, y [tokens, hidden]; saved null: nothing is kept.
  void forward(const at::Tensor& x, const at::Tensor& y, NormSaved* saved) const;
  // dx = residual + the gradient of x; residual undefined: 0; dx undefined: not wanted. dx may be
  // residual's memory.
  void backward(const Gradients& gradients, const at::Tensor& x, const NormSaved& saved,
                const at::Tensor& dy, const at::Tensor& residual, const at::Tensor& dx) const;
  bool trainable() const { return parameters_.trainable(weight_) || parameters_.trainable(bias_); }
  void no_gradient(const Gradients& gradients) const;

 private:
  struct NormShape shape(const at::Tensor& x) const;

  const Parameters& parameters_;
  NormConfig config_;
  int weight_ = -1, bias_ = -1;
};

}  // namespace fastllm::gpt
