#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {

MultiStageSettings read_multi_stage(Reader& reader) {
  const std::string at = "model.multi_stage.";
  MultiStageSettings stages;
  // int; null is 0.
  auto count = [&](const char* key) { return int(reader.optional<int64_t>(at + key).value_or(0)); };
  stages.full_precision_gradients = reader.get<bool>(at + "full_precision_gradients");
  stages.wide_frozen_weights =
      reader.get<bool>(at + "store_frozen_weights_in_optimization_precision");
  stages.debug_tensor_parallel = reader.get<bool>(at + "debug_tensor_parallel");
  stages.layers_per_stage = reader.get<double>(at + "layers_per_stage");
  stages.zero_stage = count("zero_stage");
  if (stages.zero_stage >= 2) reader.fill(at + "num_grad_buffers", config::Node::integer(2));
  if (stages.zero_stage >= 3) reader.fill(at + "num_weight_buffers", config::Node::integer(2));
  stages.num_weight_buffers = count("num_weight_buffers");
  stages.num_gradient_buffers = count("num_grad_buffers");
  return stages;
}

}  // namespace fastllm::train
