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
  ExpertsSaved experts;
  at::Tensor& mlp_input(bool has_experts) { return has_experts ? experts.router.input : mlp.input; }
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
      mlp_(config.experts > 1 ? std::optional<Mlp>() : Mlp(parameters, config, prefix + ".mlp")),
      experts_(config.experts > 1 ? MixtureOfExperts(parameters, config, prefix + ".mlp")
                                  : std::optional<MixtureOfExperts>()),
      losses_(router_losses()) {}

std::vector<Block::Loss> Block::router_losses() const {
  std::vector<Loss> losses;
  if (experts_ && experts_->router().has_balance_loss())
    losses.push_back({"load_balancing_loss", &RouterLosses::balance});
  if (experts_ && experts_->router().has_z_loss())
    losses.push_back({"router_z_loss", &RouterLosses::z});
  return losses;
}

void Block::describe_ports(const sdk::Sink& sink) const {
  sink.input(hidden_port(config_.hidden, config_.full_precision_residual));
  sink.input(ranges_port());
  if (rotary_) sink.input(batch_port("positions"));
  auto hidden = hidden_port(config_.hidden, config_.full_precision_residual);
  hidden.name = output_;
  sink.output(hidden);
  for (const Loss& loss : losses_)
    sink.output(
        {.name = loss.name, .shape = {}, .flags = FASTLLM_PORT_LOSS, .dtype = sdk::kFloat32});
}

void Block::join(const Parallel& parallel) {
  Layer::join(parallel);
  attention_.join(parallel);
  if (mlp_) mlp_->join(parallel.tensor);
  if (experts_) experts_->join(parallel);
}

void Block::mlp_no_gradient(const Gradients& gradients) const {
  if (mlp_) mlp_->no_gradient(gradients);
  if (experts_) experts_->no_gradient(gradients);
}

RouterLosses Block::loss_gradients(const Tensors& d_outputs) const {
  RouterLosses result;
  for (size_t i = 0; i < losses_.size(); ++i) {
    const at::Tensor& d_loss = d_outputs[i + 1];
    if (d_loss.defined()) result.*losses_[i].value = *d_loss.const_data_ptr<float>();
  }
  return result;
}

AttentionContext Block::attention_context(const sdk::Call& call, const TensorRegion& region,
                                          const Tensors& inputs) const {
  const at::Tensor& x = inputs[0];
  AttentionContext context;
  context.ranges = inputs[1];
  context.part = sample_part(call);
  check_ranges(context.ranges,
               region.all_tokens(x.size(0) * x.size(1)) * parallel().sequence_data.count(),
               context.part);
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
    return hidden_dropout(config_.hidden_dropout, call, use, sample_part(call), config_.hidden)
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
  const Dropout mlp_dropout = dropout(RandomUse::kMlpOutput);
  if (mlp_) {
    mlp_->forward(region, normed, mid, mlp_dropout, y, saved ? &saved->mlp : nullptr);
  } else {
    RouterLosses losses;
    experts_->forward(region, normed, mid, mlp_dropout,
                      router_noise(config_, call, sample_part(call), region.all_tokens(x.size(0))),
                      !call.evaluation(), y, losses, saved ? &saved->experts : nullptr);
    for (size_t i = 0; i < losses_.size(); ++i)
      *outputs[i + 1].mutable_data_ptr<float>() = float(losses.*losses_[i].value);
  }
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
  const RouterLosses d_losses = loss_gradients(d_outputs);
  const bool no_loss = d_losses.balance == 0 && d_losses.z == 0;
  if (!d_outputs[0].defined() && no_loss) {
    if (d_inputs[0].defined()) d_inputs[0].zero_();
    norm_1_.no_gradient(gradients);
    norm_2_.no_gradient(gradients);
    attention_.no_gradient(gradients);
    mlp_no_gradient(gradients);
    return;
  }
  const bool need_x = d_inputs[0].defined();
  const bool need_normed_1 = need_x || norm_1_.trainable();
  const bool need_mid = need_normed_1 || attention_.trainable();
  const bool need_normed_2 = need_mid || norm_2_.trainable();

  const TensorRegion region = tensor_region(call);
  const at::Tensor dy = d_outputs[0].defined() ? flat(d_outputs[0]) : empty_as(saved.mid).zero_();
  const auto maybe = [&](bool needed) { return needed ? empty_as(dy) : at::Tensor(); };
  const at::Tensor d_normed_2 = maybe(need_normed_2);
  at::Tensor& mlp_input = saved.mlp_input(experts_.has_value());
  if (mlp_needs_input() && !mlp_input.defined()) {
    mlp_input = empty_as(dy);
    norm_2_.forward(saved.mid, mlp_input, nullptr);
  }
  if (mlp_)
    mlp_->backward(region, gradients, saved.mlp, dy, d_normed_2);
  else
    experts_->backward(region, gradients, saved.experts, dy, d_losses, d_normed_2);
  log_("gradient of mlp output", dy);
  log_("gradient of norm_2 output", d_normed_2);
  saved.mlp = {};
  saved.experts = {};
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
  // As is the custom, of experts those that a token is routed to (docs/compatibility.md).
  const double mlp =
      double(config_.experts_per_token) * double(config_.gated ? 3 : 2) * double(config_.ffn);
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
