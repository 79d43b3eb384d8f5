// A mixture of experts in place of a block's MLP, from normalized input to the residual stream: a
// router sends each token to some experts, each an MLP; shared experts see every token. Behaviour:
// docs/compatibility.md; after Gale et al. 2022 ("MegaBlocks"), no token is dropped and none padded.
#pragma once

#include "layers/dropout.hpp"
#include "layers/expert_order.hpp"
#include "layers/router.hpp"

namespace fastllm::gpt {

struct ExpertsSaved {
  RouterSaved router;
  ExpertOrder order;  // of the routed experts; those of shared ones follow, token by token
  // Before the activation, [rows, ffn] or gated [rows, 2 ffn]; backward uses it up. Undefined: made
  // again.
  at::Tensor pre;
  Dropout dropout;
};

class MixtureOfExperts {
 public:
  // prefix: "layers.1.mlp".
  MixtureOfExperts(Parameters& parameters, const GptConfig& config, const std::string& prefix);

  // Its part of each expert's width on one of so many tensor ranks.
  void join(const Parallel& parallel);

  const Router& router() const { return router_; }

  // y = residual + dropout(experts(x)); all [tokens, hidden], outside the region. noise: router_noise.
  // losses: filled. saved null: nothing is kept.
  void forward(const TensorRegion& region, const at::Tensor& x, const at::Tensor& residual,
               const Dropout& dropout, const at::Tensor& noise, bool training, const at::Tensor& y,
               RouterLosses& losses, ExpertsSaved* saved) const;
  // Whether backward reads saved.router.input. Who calls it puts it there when forward did not.
  bool needs_input() const;
  // dx: gradient of x, written; undefined: not wanted. The residual's gradient is dy itself.
  void backward(const TensorRegion& region, const Gradients& gradients, ExpertsSaved& saved,
                const at::Tensor& dy, const RouterLosses& d_losses, const at::Tensor& dx) const;
  void no_gradient(const Gradients& gradients) const;
  // A gradient of the output or of a loss changes something in here.
  bool trainable() const;

 private:
  int64_t width() const { return config_.gated ? 2 * ffn_ : ffn_; }
  // Rows of one expert, routed or shared, among those of all.
  struct Span {
    int64_t begin, count;
  };
  Span span(const ExpertOrder& order, int64_t expert, int64_t tokens) const;
  // The expert's rows of values by routed row, or those of all tokens if it is shared.
  at::Tensor rows_of(const ExpertOrder& order, int64_t expert, const at::Tensor& routed,
                     const at::Tensor& all) const;
  at::Tensor gathered(const ExpertOrder& order, const at::Tensor& all) const;
  at::Tensor matrix(int index, int64_t expert) const;  // an expert's part of a weight
  void first_products(const ExpertOrder& order, const at::Tensor& routed, const at::Tensor& all,
                      const at::Tensor& pre) const;

  GptConfig config_;
  int64_t ffn_;
  const Parameters& parameters_;
  int layer_1_, layer_2_;
  std::vector<char> frozen_;  // by expert
  Router router_;
};

}  // namespace fastllm::gpt
