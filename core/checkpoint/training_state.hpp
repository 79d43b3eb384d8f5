// What a run needs besides weights and optimizer state to go on where it stopped: the `metadata`
// block of a checkpoint. Data position, learning rate and random numbers follow from these
// counters; none of them is stored.
#pragma once

#include <cstdint>
#include <string>

#include "core/checkpoint/finder.hpp"
#include "core/config/node.hpp"

namespace fastllm::checkpoint {

struct GradientScalerState {
  std::string type = "NoopGradScaler";  // or ConstantGradScaler, DynamicGradScaler
  double scale = 1;                     // not stored for Noop
  int64_t growth = 0, hysteresis = 0;   // Dynamic only: its counters
};

struct TrainingState {
  int64_t completed_steps = 0;  // training iterations done
  int64_t optimizer_step = 0;   // successful updates; fewer when loss scaling skipped some
  GradientScalerState scaler;
  config::Node
      metrics;  // what was logged at that very iteration, e.g. {Training: {...}}; may be null

  config::Node to_node() const;
  // source: the checkpoint, for messages. Negative or contradicting counters are refused.
  static TrainingState from_node(const config::Node& metadata, const std::string& source);
};

// The state in a checkpoint's metadata (the whole of it), which must be of the iteration that its folder
// is named after.
TrainingState state_of(const config::Node& metadata, const Found& checkpoint);

}  // namespace fastllm::checkpoint
