// The router of a mixture of experts: a linear map from tokens to logits over the routed experts,
// the choice of experts and their scores, and the two losses that keep it in order. Behaviour of the
// mixture: docs/compatibility.md.
#pragma once

#include "config.hpp"
#include "kernels/routing.hpp"
#include "layers/linear.hpp"

namespace fastllm::gpt {

// Where the tokens of one call go. [tokens, chosen], row-major, for all tokens of the tensor group.
struct Routes {
  at::Tensor scores;  // float32
  std::vector<int32_t> index;
};

struct RouterLosses {
  double balance = 0, z = 0;  // without coefficient: what is logged, or their gradients
};

struct RouterSaved {
  at::Tensor input;  // outside the region; undefined when not needed or made again
  at::Tensor logits,
      noisy;         // [tokens, experts]; noisy: as they were routed, the same without noise
  at::Tensor noise;  // factors from the one to the other; undefined: none
  Routes routes;
  // Of the losses, over all tokens of the micro-batch: how often an expert was chosen, by token.
  std::vector<float> choices;
};

inline const float* read(const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); }
inline float* write(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

class Router {
 public:
  // prefix: "layers.1.mlp.router".
  Router(Parameters& parameters, const GptConfig& config, const std::string& prefix);
  // The ranks that share a micro-batch's tokens: balance is judged over all of them.
  void join(const RankGroup& sequence_data) { sequence_data_ = &sequence_data; }

  bool has_balance_loss() const { return config_.routing == RoutingKind::kTopK; }
  bool has_z_loss() const { return config_.router_z_coefficient > 0; }
  bool trainable() const { return linear_.trainable(); }

  // x outside the region. noise: factors of the logits [tokens, experts] of all tokens; undefined:
  // none. Fills saved but for the input, and losses.
  void forward(const TensorRegion& region, const at::Tensor& x, const at::Tensor& noise,
               bool training, RouterSaved& saved, RouterLosses& losses) const;
  // Whether a gradient of the scores changes anything.
  bool wants_scores() const {
    return config_.experts_per_token > 1 || config_.routing == RoutingKind::kSinkhorn;
  }
  // d_scores [tokens, chosen], undefined: zero. Adds to dx, outside; undefined: not wanted.
  void backward(const TensorRegion& region, const Gradients& gradients, const RouterSaved& saved,
                const at::Tensor& d_scores, const RouterLosses& d_losses,
                const at::Tensor& dx) const;
  void no_gradient(const Gradients& gradients) const { linear_.no_gradient(gradients); }

 private:
  RoutingShape shape(const at::Tensor& logits) const;
  void probabilities(const at::Tensor& logits, const at::Tensor& out) const;
  void balance(const at::Tensor& logits, const at::Tensor& out) const;
  void judge(RouterSaved& saved, RouterLosses& losses) const;

  GptConfig config_;
  Linear linear_;
  const RankGroup* sequence_data_ = nullptr;  // null: alone
};

// Factors of the router's logits in training, uniform in [1 - jitter, 1 + jitter], a number for each
// token and expert of the whole micro-batch; undefined without jitter. tokens: all of the tensor group.
at::Tensor router_noise(const GptConfig& config, const sdk::Call& call, const SamplePart& part,
                        int64_t tokens);

}  // namespace fastllm::gpt
