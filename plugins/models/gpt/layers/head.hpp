// Final normalization, output weights, and the losses of one prediction: of the next token, or of
// one further away.
#pragma once

#include "kernels/cross_entropy.hpp"
#include "layers/norm.hpp"

namespace fastllm::gpt {

class Head : public Layer {
 public:
  // prefix: "layers.13". distance: the token it predicts, from 1; input: the name of its hidden
  // states; weights: the name of untied output weights, which all heads of a model share.
  Head(const GptConfig& config, const std::string& prefix, int64_t distance,
       const std::string& input, const std::string& weights);

  void describe_ports(const sdk::Sink& sink) const override;
  int inputs() const override { return 2; }
  int outputs() const override { return has_z_loss() ? 3 : 2; }
  sdk::SavedPointer forward(const sdk::Call& call, const Tensors& inputs,
                            const Tensors& outputs) override;
  void backward(const sdk::Call& call, sdk::Saved& saved, const Tensors& d_outputs,
                const Tensors& d_inputs) override;
  sdk::Flops flops(int64_t batch, int64_t sequence) const override;

  void join(const Parallel& parallel) override;

  // Tokens whose logits exist at a time, when there are that many.
  int64_t chunk(int64_t tokens) const;

 private:
  // What one walk over the tokens fills; undefined: not wanted.
  struct Walk {
    at::Tensor logits;    // [tokens, vocabulary]
    at::Tensor d_logits;  // the gradient, kept as a whole
    at::Tensor d_normed;  // [tokens, hidden], its product with the weight
    at::Tensor d_weight;  // [vocabulary, hidden], its product with normed
    bool gradient() const { return d_logits.defined() || d_normed.defined() || d_weight.defined(); }
  };
  // Each tensor rank has the logits of some words.
  bool divided() const { return vocabulary_ < config_.vocabulary; }
  // Hidden states and labels of the tokens that the product is of: all when it is divided, else those
  // of the outside.
  at::Tensor inside(const TensorRegion& region, const at::Tensor& normed) const;
  at::Tensor labels_inside(const TensorRegion& region, const at::Tensor& labels) const;
  // To all words of all tokens.
  void spread_logits(const TensorRegion& region, const at::Tensor& own,
                     const at::Tensor& all) const;
  LossSums losses(const at::Tensor& logits, const int64_t* labels, const LossFactors& factors,
                  const at::Tensor& gradient) const;
  // The gradient is of factors' sum over rows, times 1 / logits_scale.
  LossSums walk(const at::Tensor& normed, const at::Tensor& labels, const LossFactors& factors,
                const Walk& wanted) const;
  LossFactors factors(double cross_entropy, double z) const;
  bool has_z_loss() const { return config_.z_loss > 0; }

  GptConfig config_;
  int64_t vocabulary_;  // words of this rank
  int64_t distance_;
  std::string input_;
  double coefficient_;  // of the cross entropy in what is minimised
  int weight_;
  Norm norm_;
};

}  // namespace fastllm::gpt
