// How fast this computer is at what a step does, in a few seconds and little memory: each kind of
// layer once, the optimizer on one weight, and one exchange between the ranks that measure. All of
// them measure at the same time, since they share memory and heat in a run, too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/distributed/communicator.hpp"
#include "core/model/model.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::plan {

struct Measured {
  std::vector<int64_t> kept =
      {};                       // bytes by layer, from a forward of a micro-batch to its backward
  double peak = 0;              // FLOP/s of a rank over all layers of the model
  double memory_bandwidth = 0;  // bytes/s of a rank, as the plan counts those of the optimizer
  std::optional<double> bandwidth;  // bytes/s that a rank sends; nullopt: it is alone
};

// idle_bytes: as LayerTimer takes it. world: the ranks that measure; null: this one alone. Throws Error(kUnsupported) with tensor ranks,
// whose layers need each other.
Measured measure(const train::Settings& settings, model::Model& model,
                 distributed::Communicator* world, const std::function<int64_t()>& idle_bytes);

}  // namespace fastllm::plan
