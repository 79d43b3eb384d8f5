// Rotary position embedding: the table of angles, shared by all blocks of a model.
#pragma once

#include "config.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt {

class Rotary {
 public:
  explicit Rotary(const GptConfig& config);
  bool enabled() const { return config_.kind != RotaryKind::kNone; }

  // Turns the heads of values [tokens, >= heads * head_width] in place; backward: their gradients.
  // positions int64 [tokens]; a position of at least `limit` (the length of the sequence) is
  // refused.
  void apply(const at::Tensor& values, int64_t heads, const at::Tensor& positions, int64_t limit,
             bool backward);

 private:
  void extend(int64_t positions);

  RotaryConfig config_;
  int64_t head_width_;
  std::vector<double> frequencies_;  // of each pair, in radians a position
  std::vector<float> table_;         // [positions, head_width]: cosines, then sines
};

}  // namespace fastllm::gpt
