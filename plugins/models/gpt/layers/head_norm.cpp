// The norm kernels over heads: a row is a head of a token.
#include "layers/head_norm.hpp"

#include "kernels/norm.hpp"
#include "layers/norm.hpp"

namespace fastllm::gpt {
namespace {

// Each tensor rank has the gradient of its heads.
sdk::Parameter declaration(const GptConfig& config, const std::string& prefix) {
  auto parameter = norm_parameter(config, prefix + ".weight", config.head_width,
                                  config.norm.zero_centered ? 0 : 1);
  parameter.flags |= FASTLLM_PARAM_PARTIAL_ALWAYS;
  return parameter;
}

}  // namespace

HeadNorm::HeadNorm(Parameters& parameters, const GptConfig& config, const std::string& prefix,
                   int64_t heads)
    : parameters_(parameters),
      config_(config.norm),
      heads_(heads),
      width_(config.head_width),
      weight_(parameters.add(declaration(config, prefix))) {}

NormShape HeadNorm::shape(int64_t tokens, int64_t x_stride, int64_t y_stride) const {
  return {.rows = tokens * heads_,
          .columns = width_,
          .centered = false,
          .epsilon = float(config_.epsilon),
          .offset = config_.zero_centered ? 1.0f : 0.0f,
          .heads = heads_,
          .x_stride = x_stride,
          .y_stride = y_stride};
}

void HeadNorm::forward(const at::Tensor& values, HeadNormSaved* saved) const {
  const int64_t tokens = values.size(0);
  // The kept input is a copy without what else lies in the rows.
  at::Tensor input = values;
  if (saved) {
    input = empty({tokens, heads_ * width_});
    input.copy_(values.narrow(1, 0, heads_ * width_));
  }
  const at::Tensor inverse = empty({tokens * heads_});
  norm_forward(shape(tokens, input.stride(0), values.stride(0)), input.const_data_ptr<float>(),
               parameters_[weight_].const_data_ptr<float>(), nullptr,
               values.mutable_data_ptr<float>(), nullptr, inverse.mutable_data_ptr<float>());
  if (saved) *saved = {.input = input, .inverse = inverse};
}

void HeadNorm::backward(const Gradients& gradients, const HeadNormSaved& saved,
                        const at::Tensor& d_values) const {
  NormGradients out;
  out.x = d_values.mutable_data_ptr<float>();
  if (gradients.wanted(weight_)) {
    out.weight = gradients[weight_].mutable_data_ptr<float>();
    out.overwrite_weight = gradients.overwrites(weight_);
  }
  norm_backward(shape(d_values.size(0), saved.input.stride(0), d_values.stride(0)),
                saved.input.const_data_ptr<float>(), parameters_[weight_].const_data_ptr<float>(),
                nullptr, saved.inverse.const_data_ptr<float>(), d_values.const_data_ptr<float>(),
                out);
}

}  // namespace fastllm::gpt
