// Ranks that have some of the tokens outside the region compute the logits of those, and gather
// them: the choice is then the same on all, to the bit. Scores and losses are of all tokens; their
// gradients go back to the rank's own, whose sum over ranks is the router's gradient (PARTIAL).
#include "layers/router.hpp"

#include <algorithm>
#include <cmath>

namespace fastllm::gpt {
namespace {

// Balancing stops when the columns' factors move less, or after so many rounds.
constexpr float kSettled = 1e-5f;
constexpr int kMostRounds = 1000;

sdk::Parameter router_weight(const GptConfig& c, const std::string& prefix) {
  auto matrix =
      weight(prefix + ".weight", {c.routed_experts(), c.hidden}, c.init_all, c.router_scale);
  matrix.flags |= FASTLLM_PARAM_PARTIAL;
  return matrix;
}

// The values of all ranks that share the micro-batch, where there are several.
void sum_over(const RankGroup* ranks, std::vector<float>& values) {
  if (!ranks || ranks->alone()) return;
  ranks->sum(at::from_blob(values.data(), {int64_t(values.size())}, at::kFloat));
}
int64_t count_of(const RankGroup* ranks) { return ranks ? ranks->count() : 1; }

}  // namespace

Router::Router(Parameters& parameters, const GptConfig& config, const std::string& prefix)
    : config_(config), linear_(parameters, router_weight(config, prefix), std::nullopt) {}

RoutingShape Router::shape(const at::Tensor& logits) const {
  return {logits.size(0), logits.size(1), config_.experts_per_token};
}

void Router::probabilities(const at::Tensor& logits, const at::Tensor& out) const {
  if (config_.routing == RoutingKind::kSinkhorn && config_.experts_per_token == 1)
    row_sigmoid(shape(logits), read(logits), write(out));
  else
    row_softmax(shape(logits), read(logits), write(out));
}

// Sinkhorn and Knopp 1967: alternately scaled rows and columns, until each token and each expert
// has its share. A token's own factor does not change which of its experts is the largest.
void Router::balance(const at::Tensor& logits, const at::Tensor& out) const {
  const RoutingShape s = shape(logits);
  row_exponentials(s, read(logits), write(out));
  const int64_t all_tokens = s.tokens * count_of(sequence_data_);
  std::vector<float> factors(size_t(s.experts), 1.0f), sums(factors.size());
  for (int round = 0;; ++round) {
    balance_rows(s, read(out), factors.data(), all_tokens, sums.data());
    sum_over(sequence_data_, sums);
    float moved = 0;
    for (size_t e = 0; e < sums.size(); ++e) {
      const float next = 1 / float(s.experts) / (sums[e] + 1e-9f);
      moved += std::abs(next - factors[e]);
      factors[e] = next;
    }
    if (!(moved / float(s.experts) > kSettled)) break;
    if (round + 1 < kMostRounds) continue;
    sdk::log_warning("expected sinkhorn routing to settle within " + std::to_string(kMostRounds) +
                     " rounds, found it moving by " + std::to_string(moved / float(s.experts)) +
                     " still; the choice is what it was then: a router z-loss "
                     "(expert_z_loss_coefficient) keeps its logits small");
    break;
  }
  scale_columns(s, read(out), factors.data(), write(out));
}

void Router::judge(RouterSaved& saved, RouterLosses& losses) const {
  const RoutingShape s = shape(saved.logits);
  const double all_tokens = double(s.tokens) * double(count_of(sequence_data_));
  if (has_balance_loss()) {
    // Probabilities by expert, then choices.
    std::vector<float> sums(size_t(2 * s.experts), 0.0f);
    const at::Tensor p = empty_as(saved.noisy);
    probabilities(saved.noisy, p);
    add_column_sums(s, read(p), sums.data());
    add_choices(s, saved.routes.index.data(), sums.data() + s.experts);
    sum_over(sequence_data_, sums);
    saved.choices.resize(size_t(s.experts));
    losses.balance = 0;
    for (size_t e = 0; e < saved.choices.size(); ++e) {
      saved.choices[e] = float(sums[size_t(s.experts) + e] / all_tokens);
      losses.balance += sums[e] / all_tokens * saved.choices[e];
    }
  }
  if (has_z_loss()) {
    const at::Tensor log_sums = empty({s.tokens});
    row_log_sum(s, read(saved.logits), write(log_sums));
    double sum = 0;
    for (int64_t t = 0; t < s.tokens; ++t) sum += double(read(log_sums)[t]) * read(log_sums)[t];
    losses.z = (sequence_data_ ? sequence_data_->sum(sum) : sum) / all_tokens;
  }
}

void Router::forward(const TensorRegion& region, const at::Tensor& x, const at::Tensor& noise,
                     bool training, RouterSaved& saved, RouterLosses& losses) const {
  const at::Tensor own = empty({x.size(0), config_.routed_experts()});
  linear_.forward(x, own);
  saved.logits = saved.noisy = region.enter(own);
  saved.noise = noise;
  if (noise.defined()) saved.noisy = widened(saved.logits).mul_(noise);

  const RoutingShape s = shape(saved.logits);
  Routes& routes = saved.routes;
  routes.index.resize(size_t(s.tokens * s.chosen));
  routes.scores = empty({s.tokens, s.chosen});
  int32_t* const index = routes.index.data();
  if (config_.routing == RoutingKind::kTopK) {
    choose_largest(s, read(saved.noisy), index);
    take_chosen(s, read(saved.noisy), index, write(routes.scores));
    chosen_softmax(s, write(routes.scores));
  } else {
    const at::Tensor p = empty_as(saved.noisy);
    if (training) {
      balance(saved.noisy, p);
      choose_largest(s, read(p), index);
    }
    probabilities(saved.noisy, p);
    if (!training) choose_largest(s, read(p), index);
    take_chosen(s, read(p), index, write(routes.scores));
  }
  judge(saved, losses);
}

void Router::backward(const TensorRegion& region, const Gradients& gradients,
                      const RouterSaved& saved, const at::Tensor& d_scores,
                      const RouterLosses& d_losses, const at::Tensor& dx) const {
  if (!trainable() && !dx.defined()) return;
  const RoutingShape s = shape(saved.logits);
  const at::Tensor d_logits = empty_as(saved.logits).zero_();
  const bool top_k = config_.routing == RoutingKind::kTopK;
  const bool balanced = has_balance_loss() && d_losses.balance != 0;
  const int32_t* const index = saved.routes.index.data();
  at::Tensor p;
  if (!top_k || balanced) probabilities(saved.noisy, p = empty_as(saved.noisy));
  if (d_scores.defined() && top_k) {
    chosen_softmax_backward(s, index, read(saved.routes.scores), read(d_scores), write(d_logits));
  } else if (d_scores.defined()) {
    chosen_probability_backward(s, s.chosen == 1, index, read(p), read(d_scores), write(d_logits));
  }
  // Means over the tokens of all ranks that share the micro-batch, whose gradients are averaged over
  // those ranks: a mean over this rank's.
  const double tokens = double(s.tokens);
  if (balanced) {
    const double factor = d_losses.balance * double(s.experts) * config_.router_balance_coefficient;
    balance_backward(s, read(p), saved.choices.data(), float(factor / tokens), write(d_logits));
  }
  if (saved.noise.defined()) at::Tensor(d_logits).mul_(saved.noise);
  if (has_z_loss() && d_losses.z != 0) {
    const at::Tensor log_sums = empty({s.tokens});
    row_log_sum(s, read(saved.logits), write(log_sums));
    z_backward(s, read(saved.logits), read(log_sums),
               float(d_losses.z * config_.router_z_coefficient / tokens), write(d_logits));
  }
  const at::Tensor own = region.own_tokens(d_logits);
  linear_.backward_weight(gradients, own, saved.input);
  if (dx.defined()) linear_.backward_input(own, dx, true);
}

at::Tensor router_noise(const GptConfig& config, const sdk::Call& call, const SamplePart& part,
                        int64_t tokens) {
  if (config.router_jitter == 0 || call.evaluation()) return {};
  const uint64_t key = stream_key(call->seed, call->offset, RandomUse::kRouter);
  const at::Tensor noise = empty({tokens, config.routed_experts()});
  const int64_t experts = noise.size(1);
  for (int64_t token = 0; token < tokens; ++token)
    for (int64_t expert = 0; expert < experts; ++expert) {
      const auto number = uint64_t(part.number(token) * experts + expert);
      const double uniform = double(random_bits(key, number) >> 11) * 0x1p-53;
      write(noise)[token * experts + expert] = float(1 + config.router_jitter * (2 * uniform - 1));
    }
  return noise;
}

}  // namespace fastllm::gpt
