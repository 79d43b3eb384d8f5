// Normalization: declaration and calls of the kernels.
// Weight and bias start at 1 (0 when zero-centered) and 0, or spread uniformly around them.
#include "layers/norm.hpp"

#include <cmath>

#include "kernels/norm.hpp"

namespace fastllm::gpt {
namespace {

const float* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}
float* mutable_data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

}  // namespace

sdk::Parameter norm_parameter(const GptConfig& config, const std::string& name, int64_t width,
                              double value) {
  sdk::Parameter parameter;
  parameter.name = name;
  parameter.shape = {width};
  parameter.flags = FASTLLM_PARAM_PARTIAL;
  parameter.weight_decay = 0;
  if (const double spread = config.norm.initialization_range; spread > 0) {
    parameter.init = FASTLLM_INIT_UNIFORM;
    parameter.init_a = value - spread;
    parameter.init_b = value + spread;
  } else {
    parameter.init = value == 0 ? FASTLLM_INIT_ZEROS : FASTLLM_INIT_ONES;
  }
  if (!std::isnan(config.norm_scale)) parameter.lr_scales = {config.norm_scale};
  return parameter;
}

Norm::Norm(Parameters& parameters, const GptConfig& config, const std::string& prefix)
    : parameters_(parameters), config_(config.norm) {
  weight_ = parameters.add(
      norm_parameter(config, prefix + ".weight", config.hidden, config.norm.zero_centered ? 0 : 1));
  if (config.norm.kind == NormKind::kLayer)
    bias_ = parameters.add(norm_parameter(config, prefix + ".bias", config.hidden, 0));
}

NormShape Norm::shape(const at::Tensor& x) const {
  return {.rows = x.size(0),
          .columns = x.size(1),
          .centered = config_.kind == NormKind::kLayer,
          .epsilon = float(config_.epsilon),
          .offset = config_.zero_centered ? 1.0f : 0.0f};
}

void Norm::forward(const at::Tensor& x, const at::Tensor& y, NormSaved* saved) const {
  const auto sizes = shape(x);
  NormSaved statistics;
  if (sizes.centered) statistics.mean = empty({sizes.rows});
  statistics.inverse = empty({sizes.rows});
  norm_forward(sizes, data(x), data(parameters_[weight_]),
               bias_ < 0 ? nullptr : data(parameters_[bias_]), mutable_data(y),
               mutable_data(statistics.mean), mutable_data(statistics.inverse));
  if (saved) *saved = std::move(statistics);
}

void Norm::backward(const Gradients& gradients, const at::Tensor& x, const NormSaved& saved,
                    const at::Tensor& dy, const at::Tensor& residual, const at::Tensor& dx) const {
  NormGradients out;
  out.x = mutable_data(dx);
  out.residual = data(residual);
  if (gradients.wanted(weight_)) {
    out.weight = mutable_data(gradients[weight_]);
    out.overwrite_weight = gradients.overwrites(weight_);
  }
  if (gradients.wanted(bias_)) {
    out.bias = mutable_data(gradients[bias_]);
    out.overwrite_bias = gradients.overwrites(bias_);
  }
  norm_backward(shape(x), data(x), data(parameters_[weight_]), data(saved.mean),
                data(saved.inverse), data(dy), out);
}

void Norm::no_gradient(const Gradients& gradients) const {
  gradients.none(weight_);
  gradients.none(bias_);
}

}  // namespace fastllm::gpt
