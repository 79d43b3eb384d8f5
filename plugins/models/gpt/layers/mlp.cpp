// layer_1, activation, layer_2. layer_1 holds the gate's rows, then the up rows; layer_2 is stored
// [ffn, hidden]. The activation's output is not kept: its backward makes it again on the way
// (kernels/activation.hpp).
#include "layers/mlp.hpp"

#include "kernels/activation.hpp"

namespace fastllm::gpt {
namespace {

Linear make_layer_1(Parameters& parameters, const GptConfig& c, const std::string& prefix) {
  const int64_t blocks = c.gated ? 2 : 1;
  const auto divide = [&](sdk::Parameter& parameter) {
    parameter.shard_group = "tensor";
    parameter.shard_blocks = blocks;
  };
  auto matrix = weight(prefix + ".weight", {blocks * c.ffn, c.hidden}, c.init_mlp_1, c.mlp_scale());
  divide(matrix);
  std::optional<sdk::Parameter> offset;
  if (c.bias_mlp) {
    offset = bias(prefix + ".bias", blocks * c.ffn, c.init_mlp_1, c.random_bias, c.mlp_scale());
    divide(*offset);
  }
  return Linear(parameters, std::move(matrix), std::move(offset));
}
Linear make_layer_2(Parameters& parameters, const GptConfig& c, const std::string& prefix) {
  auto matrix = weight(prefix + ".weight", {c.ffn, c.hidden}, c.init_mlp_2, c.mlp_scale());
  matrix.shard_group = "tensor";
  std::optional<sdk::Parameter> offset;
  if (c.bias_mlp) {
    offset = bias(prefix + ".bias", c.hidden, c.init_mlp_2, c.random_bias, c.mlp_scale());
    offset->flags |= FASTLLM_PARAM_PARTIAL;
  }
  return Linear(parameters, std::move(matrix), std::move(offset), true);
}

}  // namespace

Mlp::Mlp(Parameters& parameters, const GptConfig& config, const std::string& prefix)
    : whole_ffn_(config.ffn),
      ffn_(config.ffn),
      gated_(config.gated),
      activation_(config.activation),
      recompute_(config.mlp_recompute),
      layer_1_(make_layer_1(parameters, config, prefix + ".layer_1")),
      layer_2_(make_layer_2(parameters, config, prefix + ".layer_2")) {}

void Mlp::forward(const TensorRegion& region, const at::Tensor& x, const at::Tensor& residual,
                  const Dropout& dropout, const at::Tensor& y, MlpSaved* saved) const {
  const int64_t tokens = region.all_tokens(x.size(0));
  const at::Tensor pre = empty({tokens, gated_ ? 2 * ffn_ : ffn_}), out = empty({tokens, ffn_});
  layer_1_.forward(region.enter(x), pre);
  activation_forward(activation_, gated_, tokens, ffn_, pre.const_data_ptr<float>(),
                     out.mutable_data_ptr<float>());
  layer_2_.forward_add(region, out, residual, dropout, y);
  if (!saved) return;
  const bool keeps_input = needs_input() && recompute_ < MlpRecompute::kActivationAndInput;
  *saved = {.input = keeps_input ? x : at::Tensor(),
            .pre = recompute_ == MlpRecompute::kFull ? at::Tensor() : pre,
            .dropout = dropout};
}

bool Mlp::needs_input() const {
  return layer_1_.weight_trainable() || recompute_ == MlpRecompute::kFull;
}

void Mlp::backward(const TensorRegion& region, const Gradients& gradients, MlpSaved& saved,
                   const at::Tensor& dy, const at::Tensor& dx) const {
  const at::Tensor d_outside = branch_gradient(saved.dropout, dy);
  layer_2_.backward_bias(gradients, d_outside);
  const bool below = dx.defined() || layer_1_.trainable();
  if (!below && !layer_2_.weight_trainable()) return;
  const at::Tensor d_branch = region.enter(d_outside);
  const int64_t tokens = d_branch.size(0);
  const at::Tensor input = saved.input.defined() ? region.enter(saved.input) : saved.input;
  if (!saved.pre.defined()) {
    saved.pre = empty({tokens, gated_ ? 2 * ffn_ : ffn_});
    layer_1_.forward(input, saved.pre);
  }
  const at::Tensor out = empty({tokens, ffn_});  // first its gradient, then the activation's output
  layer_2_.backward_input(d_branch, out);
  activation_backward(activation_, gated_, tokens, ffn_, saved.pre.mutable_data_ptr<float>(),
                      out.mutable_data_ptr<float>());
  layer_2_.backward_weight(gradients, d_branch, out);
  const at::Tensor& d_pre = saved.pre;
  layer_1_.backward_parameters(gradients, d_pre, input);
  if (!dx.defined()) return;
  const at::Tensor parts = region.parts(dx);
  layer_1_.backward_input(d_pre, parts);
  region.leave(parts, dx);
}

void Mlp::no_gradient(const Gradients& gradients) const {
  layer_1_.no_gradient(gradients);
  layer_2_.no_gradient(gradients);
}

}  // namespace fastllm::gpt
