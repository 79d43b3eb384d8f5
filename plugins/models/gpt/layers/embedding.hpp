// Token ids, and absolute positions, to hidden states.
#pragma once

#include "config.hpp"
#include "kernels/embedding.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt {

// The table of tokens, shared with a tied output: both declare it with the same words.
sdk::Parameter word_embeddings(const GptConfig& config);
// A [vocabulary, hidden] weight, divided over "tensor" by vocabulary if so configured.
sdk::Parameter vocabulary_weight(const GptConfig& config, const std::string& name, double lr_scale);

class Embedding : public Layer {
 public:
  explicit Embedding(const GptConfig& config);

  void describe_ports(const sdk::Sink& sink) const override;
  int inputs() const override { return positions_ >= 0 ? 2 : 1; }
  int outputs() const override { return 1; }
  double cost() const override { return 1000; }  // always the end of its stage
  sdk::SavedPointer forward(const sdk::Call& call, const Tensors& inputs,
                            const Tensors& outputs) override;
  void backward(const sdk::Call& call, sdk::Saved& saved, const Tensors& d_outputs,
                const Tensors& d_inputs) override;
  sdk::Flops flops(int64_t, int64_t) const override { return {}; }

 private:
  // Each tensor rank has some of the words.
  bool divided_vocabulary() const;
  TableRows own_words(const at::Tensor& tokens) const;
  // Of all tokens' indices those of the tokens outside.
  at::Tensor outside(const TensorRegion& region, const at::Tensor& indices) const;

  GptConfig config_;
  int words_ = -1, positions_ = -1;
};

}  // namespace fastllm::gpt
