// Parameters and floating-point operations by stage.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/activations.hpp"

namespace fastllm::plan {

// Of one micro-batch, over the ranks that share it.
struct LayerFlops {
  double forward = 0;
  // Twice the forward, less what frozen weights save; with what it computes again (scores).
  double backward = 0;
};
std::vector<LayerFlops> layer_flops(model::Model& model, const Wires& wires,
                                    const MicroBatch& micro_batch);

struct StageCompute {
  int stage = 0, pipeline_rank = 0, first_layer = 0, layers = 0;
  int64_t parameters = 0, trainable = 0;  // over all tensor ranks; a tied one where it lies
  // Of a whole step, over all ranks; `again`: forwards that recomputation makes.
  double forward = 0, backward = 0, again = 0;
  double flops() const { return forward + backward + again; }
};

}  // namespace fastllm::plan
