// Linear maps as single library products: residuals and accumulation are the product's own
// addition.
#include "layers/linear.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

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
  if (bias_ < 0)
    at::mm_out(out, x, to_output());
  else
    at::addmm_out(out, parameters_[bias_], x, to_output());
}

void Linear::forward_add(const at::Tensor& x, const at::Tensor& residual, const Dropout& dropout,
                         const at::Tensor& y) const {
  at::Tensor out = y;
  if (dropout.active()) {
    forward(x, y);
    add_branch(dropout, y, residual, y);
  } else if (bias_ < 0) {
    at::addmm_out(out, residual, x, to_output());
  } else {
    at::add_out(out, residual, parameters_[bias_]);
    out.addmm_(x, to_output());
  }
}

void Linear::backward_input(const at::Tensor& dy, const at::Tensor& dx, bool add) const {
  at::Tensor out = dx;
  if (add)
    out.addmm_(dy, to_output().t());
  else
    at::mm_out(out, dy, to_output().t());
}

void Linear::backward_parameters(const Gradients& gradients, const at::Tensor& dy,
                                 const at::Tensor& x) const {
  if (transposed_)
    gradients.product(weight_, x, dy);
  else
    gradients.product(weight_, dy, x);
  gradients.row_sum(bias_, dy);
}

void Linear::no_gradient(const Gradients& gradients) const {
  gradients.none(weight_);
  gradients.none(bias_);
}

}  // namespace fastllm::gpt
