// Rows of one expert lie together (layers/expert_order.hpp), so each expert is two products, and all
// share one pass of the activation. A score multiplies what an expert gives; its gradient is the
// product of the expert's output with the incoming one, taken before the second weight: <f W, g> = <f,
// g W^T>, whose factors the activation's backward has at hand. So no output of an expert is kept.
// Tensor ranks have a part of every expert's width: the sums over ranks are those of tokens, of input
// gradients, and of the scores' gradients.
#include "layers/experts.hpp"

#include <algorithm>

#include "kernels/activation.hpp"
#include "kernels/expert_rows.hpp"
#include "layers/product.hpp"

namespace fastllm::gpt {
namespace {

sdk::Parameter expert_weight(const std::string& name, int64_t rows, int64_t blocks,
                             const GptConfig& c, const Init& init) {
  auto matrix = weight(name, {c.experts * rows, c.hidden}, init, c.mlp_scale());
  if (c.mlp_scales.size() > 1) matrix.lr_scales = c.mlp_scales;
  matrix.shard_group = "tensor";
  matrix.shard_blocks = c.experts * blocks;
  return matrix;
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(Parameters& parameters, const GptConfig& c,
                                   const std::string& prefix)
    : config_(c),
      ffn_(c.ffn),
      parameters_(parameters),
      layer_1_(parameters.add(expert_weight(prefix + ".layer_1.weight", (c.gated ? 2 : 1) * c.ffn,
                                            c.gated ? 2 : 1, c, c.init_mlp_1))),
      layer_2_(
          parameters.add(expert_weight(prefix + ".layer_2.weight", c.ffn, 1, c, c.init_mlp_2))),
      router_(parameters, c, prefix + ".router") {
  for (int64_t e = 0; e < c.experts; ++e)
    frozen_.push_back(c.mlp_scales[c.mlp_scales.size() > 1 ? size_t(e) : 0] == 0);
}

void MixtureOfExperts::join(const Parallel& parallel) {
  ffn_ = config_.ffn / parallel.tensor.count();
  router_.join(parallel.sequence_data);
}

MixtureOfExperts::Span MixtureOfExperts::span(const ExpertOrder& order, int64_t expert,
                                              int64_t tokens) const {
  const int64_t routed = config_.routed_experts();
  if (expert >= routed) return {order.count() + (expert - routed) * tokens, tokens};
  const int64_t begin = order.ends[size_t(expert)];
  return {begin, order.ends[size_t(expert) + 1] - begin};
}

at::Tensor MixtureOfExperts::rows_of(const ExpertOrder& order, int64_t expert,
                                     const at::Tensor& routed, const at::Tensor& all) const {
  if (expert >= config_.routed_experts()) return all;
  const Span s = span(order, expert, 0);
  return routed.narrow(0, s.begin, s.count);
}

at::Tensor MixtureOfExperts::gathered(const ExpertOrder& order, const at::Tensor& all) const {
  const at::Tensor result = empty({order.count(), all.size(1)});
  gather_expert_rows(order.count(), all.size(1), order.tokens.data(), read(all), write(result));
  return result;
}

at::Tensor MixtureOfExperts::matrix(int index, int64_t expert) const {
  const at::Tensor& whole = parameters_[index];
  const int64_t rows = whole.size(0) / config_.experts;
  return whole.narrow(0, expert * rows, rows);
}

void MixtureOfExperts::first_products(const ExpertOrder& order, const at::Tensor& routed,
                                      const at::Tensor& all, const at::Tensor& pre) const {
  for (int64_t e = 0; e < config_.experts; ++e) {
    const Span s = span(order, e, all.size(0));
    if (s.count == 0) continue;
    product(rows_of(order, e, routed, all), matrix(layer_1_, e).t(), false,
            pre.narrow(0, s.begin, s.count));
  }
}

void MixtureOfExperts::forward(const TensorRegion& region, const at::Tensor& x,
                               const at::Tensor& residual, const Dropout& dropout,
                               const at::Tensor& noise, bool training, const at::Tensor& y,
                               RouterLosses& losses, ExpertsSaved* saved) const {
  RouterSaved routing;
  router_.forward(region, x, noise, training, routing, losses);
  const at::Tensor all = region.enter(x);
  const int64_t tokens = all.size(0), routed_experts = config_.routed_experts();
  ExpertOrder order = sort_by_expert(tokens, config_.experts_per_token, routed_experts,
                                     routing.routes.index.data());
  const int64_t count = order.count() + config_.shared_experts * tokens;
  at::Tensor routed = gathered(order, all);
  const at::Tensor pre = empty({count, width()}), out = empty({count, ffn_});
  first_products(order, routed, all, pre);
  activation_forward(config_.activation, config_.gated, count, ffn_, read(pre), write(out));

  // The inputs' rows are used up: their memory takes the outputs.
  for (int64_t e = 0; e < routed_experts; ++e) {
    const Span s = span(order, e, tokens);
    if (s.count > 0)
      product(out.narrow(0, s.begin, s.count), matrix(layer_2_, e), false,
              routed.narrow(0, s.begin, s.count));
  }
  const bool direct = !region.divided() && !dropout.active();  // sums begin with the residual
  const at::Tensor parts = region.parts(y);
  combine_expert_rows({tokens, config_.experts_per_token, order.rows.data()}, config_.hidden,
                      read(routed), read(routing.routes.scores), direct ? read(residual) : nullptr,
                      write(parts));
  for (int64_t e = routed_experts; e < config_.experts; ++e) {
    const Span s = span(order, e, tokens);
    product(out.narrow(0, s.begin, s.count), matrix(layer_2_, e), true, parts);
  }
  if (!direct) {
    region.leave(parts, y);
    if (dropout.active())
      add_branch(dropout, y, residual, y);
    else
      at::Tensor(y).add_(residual);
  }
  if (!saved) return;
  routing.input =
      needs_input() && config_.mlp_recompute < MlpRecompute::kActivationAndInput ? x : at::Tensor();
  *saved = {.router = std::move(routing),
            .order = std::move(order),
            .pre = config_.mlp_recompute == MlpRecompute::kFull ? at::Tensor() : pre,
            .dropout = dropout};
}

bool MixtureOfExperts::needs_input() const {
  return router_.trainable() || parameters_.trainable(layer_1_) ||
         config_.mlp_recompute == MlpRecompute::kFull;
}

bool MixtureOfExperts::trainable() const {
  return router_.trainable() || parameters_.trainable(layer_1_) || parameters_.trainable(layer_2_);
}

void MixtureOfExperts::backward(const TensorRegion& region, const Gradients& gradients,
                                ExpertsSaved& saved, const at::Tensor& dy,
                                const RouterLosses& d_losses, const at::Tensor& dx) const {
  if (!dx.defined() && !trainable()) return;
  const ExpertOrder& order = saved.order;
  const at::Tensor all = region.enter(branch_gradient(saved.dropout, dy));
  const int64_t tokens = all.size(0), experts = config_.experts;
  const int64_t routed_rows = order.count();
  const bool first = parameters_.trainable(layer_1_);
  at::Tensor all_input, routed_input;  // needed for the first weight, or to make pre again
  if (first || !saved.pre.defined()) {
    all_input = region.enter(saved.router.input);
    routed_input = gathered(order, all_input);
  }
  if (!saved.pre.defined()) {
    saved.pre = empty({routed_rows + config_.shared_experts * tokens, width()});
    first_products(order, routed_input, all_input, saved.pre);
  }
  const at::Tensor& pre = saved.pre;
  at::Tensor routed = gathered(order, all);
  const at::Tensor out = empty({pre.size(0), ffn_});  // first its gradient, then its scored output
  for (int64_t e = 0; e < experts; ++e) {
    const Span s = span(order, e, tokens);
    if (s.count > 0)
      product(rows_of(order, e, routed, all), matrix(layer_2_, e).t(), false,
              out.narrow(0, s.begin, s.count));
  }

  // The scores by row, and their gradients from rows back to choices.
  const at::Tensor& scores = saved.router.routes.scores;
  const at::Tensor row_scores = empty({routed_rows}), d_row_scores = empty({routed_rows});
  for (size_t j = 0; j < order.rows.size(); ++j) write(row_scores)[order.rows[j]] = read(scores)[j];
  scored_activation_backward(config_.activation, config_.gated, routed_rows, ffn_, read(row_scores),
                             write(pre), write(out), write(d_row_scores));
  activation_backward(config_.activation, config_.gated, pre.size(0) - routed_rows, ffn_,
                      write(pre) + routed_rows * width(), write(out) + routed_rows * ffn_);

  for (int64_t e = 0; e < experts; ++e) {
    const Span s = span(order, e, tokens);
    if (frozen_[size_t(e)] || s.count == 0) {
      gradients.no_chunk(layer_1_, e, experts);
      gradients.no_chunk(layer_2_, e, experts);
      continue;
    }
    gradients.chunk_product(layer_2_, e, experts, out.narrow(0, s.begin, s.count),
                            rows_of(order, e, routed, all));
    if (first)
      gradients.chunk_product(layer_1_, e, experts, pre.narrow(0, s.begin, s.count),
                              rows_of(order, e, routed_input, all_input));
  }
  if (dx.defined()) {
    // The outputs' gradients are used up: their memory takes the inputs'.
    for (int64_t e = 0; e < config_.routed_experts(); ++e) {
      const Span s = span(order, e, tokens);
      if (s.count > 0)
        product(pre.narrow(0, s.begin, s.count), matrix(layer_1_, e), false,
                routed.narrow(0, s.begin, s.count));
    }
    const at::Tensor parts = region.parts(dx);
    combine_expert_rows({tokens, config_.experts_per_token, order.rows.data()}, config_.hidden,
                        read(routed), nullptr, nullptr, write(parts));
    for (int64_t e = config_.routed_experts(); e < experts; ++e) {
      const Span s = span(order, e, tokens);
      product(pre.narrow(0, s.begin, s.count), matrix(layer_1_, e), true, parts);
    }
    region.leave(parts, dx);
  }
  at::Tensor d_scores;
  if (router_.wants_scores() && (dx.defined() || router_.trainable())) {
    d_scores = empty_as(scores);
    for (size_t j = 0; j < order.rows.size(); ++j)
      write(d_scores)[j] = read(d_row_scores)[order.rows[j]];
    region.sum(d_scores);
  }
  router_.backward(region, gradients, saved.router, d_scores, d_losses, dx);
}

void MixtureOfExperts::no_gradient(const Gradients& gradients) const {
  gradients.none(layer_1_);
  gradients.none(layer_2_);
  router_.no_gradient(gradients);
}

}  // namespace fastllm::gpt
