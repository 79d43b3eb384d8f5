// Linear maps as single products: residuals and accumulation are the product's own addition.
#include "layers/linear.hpp"

#include <ATen/ops/add.h>

#include "layers/product.hpp"

namespace fastllm::gpt {

Linear::Linear(Parameters& parameters, sdk::Parameter weight, std::optional<sdk::Parameter> bias,
               bool transposed)
    : parameters_(parameters), transposed_(transposed) {
  weight_ = parameters.add(std::move(weight));
  if (bias) bias_ = parameters.add(std::move(*bias));
}

at::Tensor Linear::to_output() const {
  return transposed_ ? parameters_[weight_] : parameters_[weight_].t();
}

void Linear::forward(const at::Tensor& x, const at::Tensor& y) const {
  at::Tensor out = y;
  if (bias_ >= 0) out.copy_(parameters_[bias_].expand_as(out));
  product(x, to_output(), bias_ >= 0, out);
}

void Linear::forward_add(const at::Tensor& x, const at::Tensor& residual, const Dropout& dropout,
                         const at::Tensor& y) const {
  at::Tensor out = y;
  if (dropout.active()) {
    forward(x, y);
    add_branch(dropout, y, residual, y);
  } else {
    if (bias_ < 0)
      out.copy_(residual);
    else
      at::add_out(out, residual, parameters_[bias_]);
    product(x, to_output(), true, out);
  }
}

void Linear::forward_add(const TensorRegion& region, const at::Tensor& x,
                         const at::Tensor& residual, const Dropout& dropout,
                         const at::Tensor& y) const {
  if (!region.divided()) return forward_add(x, residual, dropout, y);
  const at::Tensor parts = region.parts(y);
  product(x, to_output(), false, parts);
  region.leave(parts, y);
  at::Tensor out = y;
  if (bias_ >= 0) out.add_(parameters_[bias_]);
  if (dropout.active())
    add_branch(dropout, y, residual, y);
  else
    out.add_(residual);
}

void Linear::backward_input(const at::Tensor& dy, const at::Tensor& dx, bool add) const {
  product(dy, to_output().t(), add, dx);
}

void Linear::backward_parameters(const Gradients& gradients, const at::Tensor& dy,
                                 const at::Tensor& x) const {
  backward_weight(gradients, dy, x);
  backward_bias(gradients, dy);
}

void Linear::backward_weight(const Gradients& gradients, const at::Tensor& dy,
                             const at::Tensor& x) const {
  if (transposed_)
    gradients.product(weight_, x, dy);
  else
    gradients.product(weight_, dy, x);
}

void Linear::backward_bias(const Gradients& gradients, const at::Tensor& dy) const {
  gradients.row_sum(bias_, dy);
}

void Linear::no_gradient(const Gradients& gradients) const {
  gradients.none(weight_);
  gradients.none(bias_);
}

}  // namespace fastllm::gpt
