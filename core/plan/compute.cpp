#include "core/plan/compute.hpp"

#include <algorithm>

namespace fastllm::plan {

std::vector<LayerFlops> layer_flops(model::Model& model, const Wires& wires,
                                    const MicroBatch& micro_batch) {
  const model::Description& d = model.description();
  const double tokens = double(micro_batch.samples) * double(micro_batch.length);
  std::vector<LayerFlops> result;
  for (size_t l = 0; l < d.layers.size(); ++l) {
    const model::Flops flops = model.flops(int(l), micro_batch.samples, micro_batch.length);
    double matrices = 0, trainable = 0;  // elements of weights that are multiplied with
    for (int p : d.layers[l].parameters) {
      const model::Parameter& parameter = d.parameters[size_t(p)];
      if (parameter.shape.size() < 2) continue;
      matrices += double(parameter.elements());
      if (!parameter.frozen()) trainable += double(parameter.elements());
    }
    // A product with weights costs its backward one for the input and one for the weights; one of
    // two activations (scores) two.
    const double products = std::min(flops.forward, 2 * tokens * matrices);
    const double of_weights = matrices > 0 ? products * trainable / matrices : 0;
    LayerFlops own{flops.forward, 0};
    if (wires.wiring.layers[l].backward)
      own.backward = products + of_weights + 2 * (flops.forward - products) + flops.recomputed;
    result.push_back(own);
  }
  return result;
}

}  // namespace fastllm::plan
