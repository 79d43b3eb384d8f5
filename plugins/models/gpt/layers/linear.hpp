// A linear map with its weight and optional bias, as a part of a layer. Rows are tokens.
#pragma once

#include "layers/dropout.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt {

class Linear {
 public:
  // transposed: the weight is stored [in, out] (the second MLP layer); otherwise [out, in].
  Linear(Parameters& parameters, sdk::Parameter weight, std::optional<sdk::Parameter> bias,
         bool transposed = false);

  // y = x W^T + b.
  void forward(const at::Tensor& x, const at::Tensor& y) const;
  // y = residual + dropout(x W^T + b). y is not x.
  void forward_add(const at::Tensor& x, const at::Tensor& residual, const Dropout& dropout,
                   const at::Tensor& y) const;
  // The same where each tensor rank has some of the inputs: x of all tokens, the rest outside.
  void forward_add(const TensorRegion& region, const at::Tensor& x, const at::Tensor& residual,
                   const Dropout& dropout, const at::Tensor& y) const;
  // dx (=|+=) dy W.
  void backward_input(const at::Tensor& dy, const at::Tensor& dx, bool add = false) const;
  // Weight and bias gradients, where they are not frozen; x may be undefined when the weight is.
  void backward_parameters(const Gradients& gradients, const at::Tensor& dy,
                           const at::Tensor& x) const;
  void backward_weight(const Gradients& gradients, const at::Tensor& dy, const at::Tensor& x) const;
  void backward_bias(const Gradients& gradients, const at::Tensor& dy) const;
  bool trainable() const { return parameters_.trainable(weight_) || parameters_.trainable(bias_); }
  bool weight_trainable() const { return parameters_.trainable(weight_); }
  void no_gradient(const Gradients& gradients) const;

 private:
  at::Tensor to_output() const;  // [in, out] view of the weight
  const Parameters& parameters_;
  int weight_ = -1, bias_ = -1;
  bool transposed_;
};

}  // namespace fastllm::gpt
