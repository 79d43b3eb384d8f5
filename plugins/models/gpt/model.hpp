// The whole architecture: embedding, blocks, head, as numbered layers, and the calls of the C table
// (fastllm/model.hpp). One thread at a time; several models may be alive.
#pragma once

#include <fastllm/model.hpp>

#include "config.hpp"
#include "layers/layer.hpp"
#include "layers/rotary.hpp"

namespace fastllm::gpt {

class GptModel {
 public:
  static constexpr const char* kType = "gpt";
  static void fields(const sdk::Sink& sink);

  explicit GptModel(sdk::Config node) : GptModel(read_config(node)) {}
  explicit GptModel(const GptConfig& config);

  void describe(const sdk::Sink& sink) const;
  void bind(int layer, const DLTensor* const* weights, DLTensor* const* gradients);
  sdk::SavedPointer forward(int layer, const sdk::Call& call, const DLTensor* const* inputs,
                            DLTensor* const* outputs);
  void backward(int layer, const sdk::Call& call, sdk::SavedPointer saved,
                const DLTensor* const* d_outputs, DLTensor* const* d_inputs);
  sdk::Flops flops(int layer, int64_t batch, int64_t sequence) const;

 private:
  Layer& layer(int index) const;

  Parallel parallel_;
  Rotary rotary_;  // used by all blocks, so it comes first
  std::vector<std::unique_ptr<Layer>>
      layers_;  // 0 embedding, 1 .. N blocks, N + 1 head, further pairs of a block and a head
};

}  // namespace fastllm::gpt
