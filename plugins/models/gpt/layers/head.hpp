// Final normalization, output weights, and the language-model loss.
#pragma once

#include "layers/norm.hpp"

namespace fastllm::gpt {

class Head : public Layer {
 public:
  // prefix: "layers.13".
  Head(const GptConfig& config, const std::string& prefix);

  void describe_ports(const sdk::Sink& sink) const override;
  int inputs() const override { return 2; }
  int outputs() const override { return 2; }
  sdk::SavedPointer forward(const sdk::Call& call, const Tensors& inputs,
                            const Tensors& outputs) override;
  void backward(const sdk::Call& call, sdk::Saved& saved, const Tensors& d_outputs,
                const Tensors& d_inputs) override;
  sdk::Flops flops(int64_t batch, int64_t sequence) const override;

 private:
  GptConfig config_;
  int weight_;
  Norm norm_;
};

}  // namespace fastllm::gpt
