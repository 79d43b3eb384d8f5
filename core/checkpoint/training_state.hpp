// What a run needs besides weights and optimizer state to go on where it stopped: the `metadata`
// block of a checkpoint. Data position, learning rate and random numbers follow from these
// counters; none of them is stored.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/finder.hpp"
#include "core/config/node.hpp"

namespace fastllm::checkpoint {

struct GradientScalerState {
  std::string type = "NoopGradScaler";  // or ConstantGradScaler, DynamicGradScaler
  double scale = 1;                     // not stored for Noop
  int64_t growth = 0, hysteresis = 0;   // Dynamic only: its counters
};

// Sums by name over some steps.
struct Sums {
  std::map<std::string, double> values;
  int64_t steps = 0;
};

// What was counted since training was last logged, so that the next line tells of all its steps.
struct SinceLog {
  Sums losses, metrics;
  int64_t skipped_iters = 0, nan_iters = 0;
};

struct TrainingState {
  int64_t completed_steps = 0;  // training iterations done
  int64_t optimizer_step = 0;   // successful updates; fewer when loss scaling skipped some
  GradientScalerState scaler;
  config::Node
      metrics;  // what was logged at that very iteration, e.g. {Training: {...}}; may be null
  // Phases ("validation", "validation/NAME") due after that iteration and cut short: a resumed run
  // does them before anything else. Stored only when there are any.
  std::vector<std::string> due_evaluations;
  SinceLog since_log;  // stored when there is anything in it

  config::Node to_node() const;
  // source: the checkpoint, for messages. Negative or contradicting counters are refused.
  static TrainingState from_node(const config::Node& metadata, const std::string& source);
};

// The state in a checkpoint's metadata (the whole of it), which must be of the iteration that its folder
// is named after.
TrainingState state_of(const config::Node& metadata, const Found& checkpoint);

}  // namespace fastllm::checkpoint
