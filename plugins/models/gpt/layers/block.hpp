// A transformer block: x + attention(norm_1(x)), then the same with the MLP, or with a mixture of
// experts, whose router has losses of its own.
#pragma once

#include "layers/attention.hpp"
#include "layers/block_log.hpp"
#include "layers/experts.hpp"
#include "layers/mlp.hpp"
#include "layers/norm.hpp"

namespace fastllm::gpt {

class Block : public Layer {
 public:
  // prefix: "layers.1"; number counts blocks from 1; output: the name of its hidden states.
  Block(const GptConfig& config, const std::string& prefix, int64_t number, Rotary& rotary,
        const std::string& output = "hidden");

  void describe_ports(const sdk::Sink& sink) const override;
  void join(const Parallel& parallel) override;
  int inputs() const override { return rotary_ ? 3 : 2; }
  int outputs() const override { return 1 + int(losses_.size()); }
  sdk::SavedPointer forward(const sdk::Call& call, const Tensors& inputs,
                            const Tensors& outputs) override;
  void backward(const sdk::Call& call, sdk::Saved& saved, const Tensors& d_outputs,
                const Tensors& d_inputs) override;
  sdk::Flops flops(int64_t batch, int64_t sequence) const override;

 private:
  // A router's loss: its name, and where its value is.
  struct Loss {
    const char* name;
    double RouterLosses::*value;
  };
  std::vector<Loss> router_losses() const;
  bool mlp_needs_input() const { return experts_ ? experts_->needs_input() : mlp_->needs_input(); }
  void mlp_no_gradient(const Gradients& gradients) const;
  // The gradients of the router's losses; 0 where the host gives none.
  RouterLosses loss_gradients(const Tensors& d_outputs) const;
  AttentionContext attention_context(const sdk::Call& call, const TensorRegion& region,
                                     const Tensors& inputs) const;

  GptConfig config_;
  int64_t window_;
  bool rotary_;
  std::string output_;
  BlockLog log_;
  Norm norm_1_, norm_2_;
  Attention attention_;
  std::optional<Mlp> mlp_;
  std::optional<MixtureOfExperts> experts_;  // one of the two
  const std::vector<Loss> losses_;           // by output, after the hidden states
};

}  // namespace fastllm::gpt
