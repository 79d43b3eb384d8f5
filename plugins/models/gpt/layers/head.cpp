// The largest tensor of a step, tokens x vocabulary, exists once: the logits become their own
// gradient in forward. The incoming gradient of the loss is one number and scales the two products
// of backward.
#include "layers/head.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>

#include "kernels/cross_entropy.hpp"
#include "layers/embedding.hpp"

namespace fastllm::gpt {
namespace {

struct HeadSaved : sdk::Saved {
  at::Tensor x;         // the host's input
  at::Tensor normed;    // undefined when the output weights need no gradient
  at::Tensor d_logits;  // softmax - one-hot, [tokens, vocabulary]
  NormSaved norm;
};

}  // namespace

Head::Head(const GptConfig& config, const std::string& prefix)
    : config_(config),
      weight_(parameters.add(config.tied ? word_embeddings(config)
                                         : vocabulary_weight(config, prefix + ".output_weights",
                                                             config.output_scale))),
      norm_(parameters, config, prefix + ".final_norm") {}

void Head::describe_ports(const sdk::Sink& sink) const {
  sink.input(hidden_port(config_.hidden));
  sink.input(batch_port("labels"));
  sink.output({.name = "language_model_loss",
               .shape = {},
               .flags = FASTLLM_PORT_LOSS | FASTLLM_PORT_SUM,
               .dtype = sdk::kFloat32});
  sink.output({.name = "logits",
               .shape = {FASTLLM_DIM_BATCH, FASTLLM_DIM_SEQUENCE, config_.vocabulary},
               .flags = FASTLLM_PORT_NO_GRAD | FASTLLM_PORT_OPTIONAL});
}

sdk::SavedPointer Head::forward(const sdk::Call& call, const Tensors& inputs,
                                const Tensors& outputs) {
  check_indices(inputs[1], "labels", config_.vocabulary, "vocab_size", kNoLabel);
  const at::Tensor x = flat(inputs[0]), normed = at::empty_like(x);
  auto saved = call.save() ? std::make_unique<HeadSaved>() : nullptr;
  norm_.forward(x, normed, saved ? &saved->norm : nullptr);

  const bool wanted = outputs[1].defined();
  at::Tensor logits = wanted ? flat(outputs[1]) : empty({x.size(0), config_.vocabulary});
  at::addmm_out(logits, logits, normed, parameters[weight_].t(), 0, config_.logits_scale);
  const at::Tensor d_logits = !saved ? at::Tensor() : wanted ? at::empty_like(logits) : logits;
  const double loss =
      cross_entropy(logits.const_data_ptr<float>(), inputs[1].const_data_ptr<int64_t>(), x.size(0),
                    config_.vocabulary, saved ? d_logits.mutable_data_ptr<float>() : nullptr);
  *outputs[0].mutable_data_ptr<float>() = float(loss);
  if (saved) {
    saved->x = x;
    if (parameters.trainable(weight_)) saved->normed = normed;
    saved->d_logits = d_logits;
  }
  return saved;
}

void Head::backward(const sdk::Call& call, sdk::Saved& kept, const Tensors& d_outputs,
                    const Tensors& d_inputs) {
  const auto& saved = static_cast<const HeadSaved&>(kept);
  const Gradients gradients(parameters, call);
  const bool need_x = d_inputs[0].defined();
  if (!d_outputs[0].defined()) {
    if (need_x) d_inputs[0].zero_();
    gradients.none(weight_);
    norm_.no_gradient(gradients);
    return;
  }
  const double scale = double(*d_outputs[0].const_data_ptr<float>()) * config_.logits_scale;
  gradients.product(weight_, saved.d_logits, saved.normed, scale);
  if (!need_x && !norm_.trainable()) return;
  at::Tensor d_normed = at::empty_like(saved.x);
  at::addmm_out(d_normed, d_normed, saved.d_logits, parameters[weight_], 0, scale);
  norm_.backward(gradients, saved.x, saved.norm, d_normed, {},
                 need_x ? flat(d_inputs[0]) : at::Tensor());
}

sdk::Flops Head::flops(int64_t batch, int64_t sequence) const {
  return {.forward = 2 * double(batch) * double(sequence) * double(config_.hidden) *
                     double(config_.vocabulary)};
}

}  // namespace fastllm::gpt
