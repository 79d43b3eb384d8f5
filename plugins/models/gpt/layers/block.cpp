// Backward goes only as deep as someone needs: a part below which nothing is trainable and no input
// gradient is wanted is not computed at all.
#include "layers/block.hpp"

#include <algorithm>

namespace fastllm::gpt {
namespace {

struct BlockSaved : sdk::Saved {
  at::Tensor x;    // the host's input, in its type
  at::Tensor mid;  // after attention, [tokens, hidden]
  NormSaved norm_1, norm_2;
  AttentionSaved attention;
  MlpSaved mlp;
};

}  // namespace

Block::Block(const GptConfig& config, const std::string& prefix, int64_t number, Rotary& rotary,
             const std::string& output)
    : config_(config),
      window_(config.window_of(number)),
      rotary_(rotary.enabled()),
      output_(output),
      log_(config, prefix),
      norm_1_(parameters, config, prefix + ".norm_1"),
      norm_2_(parameters, config, prefix + ".norm_2"),
      attention_(parameters, config, prefix + ".self_attn", window_, rotary),
      mlp_(parameters, config, prefix + ".mlp") {}

void Block::describe_ports(const sdk::Sink& sink) const {
  sink.input(hidden_port(config_.hidden, config_.full_precision_residual));
  sink.input(ranges_port());
  if (rotary_) sink.input(batch_port("positions"));
  auto hidden = hidden_port(config_.hidden, config_.full_precision_residual);
  hidden.name = output_;
  sink.output(hidden);
}

void Block::join(const Parallel& parallel) {
  Layer::join(parallel);
  attention_.join(parallel.tensor);
  mlp_.join(parallel.tensor);
}

AttentionContext Block::attention_context(const sdk::Call& call, const TensorRegion& region,
                                          const Tensors& inputs) const {
  const at::Tensor& x = inputs[0];
  AttentionContext context;
  context.ranges = inputs[1];
  check_ranges(context.ranges, region.all_tokens(x.size(0) * x.size(1)));
  if (rotary_) context.positions = inputs[2].reshape({-1});
  context.length = std::max(region.split() ? 0 : x.size(1), call->length);
  if (!call.evaluation()) {
    context.dropout = make_dropout(config_.attention_dropout,
                                   stream_key(call->seed, call->offset, RandomUse::kAttention));
  }
  return context;
}

sdk::SavedPointer Block::forward(const sdk::Call& call, const Tensors& inputs,
                                 const Tensors& outputs) {
  const at::Tensor x = in_float32(flat(inputs[0])), y = flat(outputs[0]);
  auto saved = call.save() ? std::make_unique<BlockSaved>() : nullptr;
  const at::Tensor mid = empty_as(x);
  const TensorRegion region = tensor_region(call);
  const auto dropout = [&](RandomUse use) {
    return hidden_dropout(config_.hidden_dropout, call, use)
        .from(region.first_token(x.size(0)) * config_.hidden);
  };
  {
    const at::Tensor normed = empty_as(x);
    norm_1_.forward(x, normed, saved ? &saved->norm_1 : nullptr);
    attention_.forward(region, attention_context(call, region, inputs), normed, x,
                       dropout(RandomUse::kAttentionOutput), mid,
                       saved ? &saved->attention : nullptr);
    log_("norm_1 output", normed);
    log_("attention output", mid);
  }
  const at::Tensor normed = empty_as(x);
  norm_2_.forward(mid, normed, saved ? &saved->norm_2 : nullptr);
  mlp_.forward(region, normed, mid, dropout(RandomUse::kMlpOutput), y,
               saved ? &saved->mlp : nullptr);
  log_("norm_2 output", normed);
  log_("mlp output", y);
  if (saved) {
    saved->x = flat(inputs[0]);
    saved->mid = mid;
  }
  return saved;
}

void Block::backward(const sdk::Call& call, sdk::Saved& kept, const Tensors& d_outputs,
                     const Tensors& d_inputs) {
  auto& saved = static_cast<BlockSaved&>(kept);
  const Gradients gradients(parameters, call);
  if (!d_outputs[0].defined()) {
    if (d_inputs[0].defined()) d_inputs[0].zero_();
    norm_1_.no_gradient(gradients);
    norm_2_.no_gradient(gradients);
    attention_.no_gradient(gradients);
    mlp_.no_gradient(gradients);
    return;
  }
  const bool need_x = d_inputs[0].defined();
  const bool need_normed_1 = need_x || norm_1_.trainable();
  const bool need_mid = need_normed_1 || attention_.trainable();
  const bool need_normed_2 = need_mid || norm_2_.trainable();

  const TensorRegion region = tensor_region(call);
  const at::Tensor dy = flat(d_outputs[0]);
  const auto maybe = [&](bool needed) { return needed ? empty_as(dy) : at::Tensor(); };
  const at::Tensor d_normed_2 = maybe(need_normed_2);
  if (mlp_.needs_input() && !saved.mlp.input.defined()) {
    saved.mlp.input = empty_as(dy);
    norm_2_.forward(saved.mid, saved.mlp.input, nullptr);
  }
  mlp_.backward(region, gradients, saved.mlp, dy, d_normed_2);
  log_("gradient of mlp output", dy);
  log_("gradient of norm_2 output", d_normed_2);
  saved.mlp = {};
  if (!need_normed_2) return;
  const at::Tensor d_mid = maybe(need_mid);
  norm_2_.backward(gradients, saved.mid, saved.norm_2, d_normed_2, dy, d_mid);
  if (!need_mid) return;
  const at::Tensor d_normed_1 = maybe(need_normed_1);
  attention_.backward(region, gradients, saved.attention, d_mid, d_normed_1);
  log_("gradient of attention output", d_mid);
  log_("gradient of norm_1 output", d_normed_1);
  if (!need_normed_1) return;
  norm_1_.backward(gradients, in_float32(saved.x), saved.norm_1, d_normed_1, d_mid,
                   need_x ? flat(d_inputs[0]) : at::Tensor());
}

sdk::Flops Block::flops(int64_t batch, int64_t sequence) const {
  const double tokens = double(batch) * double(sequence);
  const double projections =
      2 * double(config_.heads + config_.groups) * double(config_.head_width);
  const double mlp = double(config_.gated ? 3 : 2) * double(config_.ffn);
  // Scores and values are two products of which the causal half is needed, or what lies in the
  // window.
  const double length = double(sequence);
  const double window = window_ > 0 ? std::min(double(window_), length) : length;
  const double seen = 2 * window * (1 - window / (2 * length));
  const double attention = 2 * tokens * double(config_.query_width()) * seen;
  // The backward makes the scores again: half of the forward's two products.
  return {.forward = 2 * tokens * double(config_.hidden) * (projections + mlp) + attention,
          .recomputed = attention / 2};
}

}  // namespace fastllm::gpt
