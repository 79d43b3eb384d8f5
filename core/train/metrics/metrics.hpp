// The numbers of one log interval, as the reference's line for people and as one JSON line for programs.
// Names and formats: docs/compatibility.md; the JSON keys are those of the reference's metrics in checkpoints.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/config/node.hpp"
#include "core/train/metrics/memory.hpp"

namespace fastllm::train {

struct Metrics {
  static constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

  std::string phase;  // "training", "validation", "test"; a named set: "validation/name"
  int64_t iteration = 0, train_iters = 0;
  int64_t batch_size = 0;       // samples over all ranks
  int64_t sequence_length = 0;  // tokens
  int world_size = 1;
  double step_time_ms = kMissing;
  double model_flops = 0, hardware_flops = 0;  // of one step, over all ranks; 0: not known
  MemoryUse memory{kMissing, kMissing, kMissing};

  struct Training {  // what only training lines have
    double learning_rate = kMissing, loss_scale = 1, grad_norm = kMissing;
    int64_t skipped_iters = 0, nan_iters = 0;
    double step_time_average_ms = kMissing;
    double data_wait_ms = 0;  // waited for data, per step (JSON only)
    std::optional<int> run;   // number of the run folder; none without one
  };
  std::optional<Training> training;
  std::vector<std::pair<std::string, double>>
      losses;  // in order of definition; nan: no successful iteration

  std::vector<std::pair<std::string, double>> others;  // the model's metrics, means like the losses

  double tokens_per_second() const {
    return double(sequence_length) * double(batch_size) / world_size / step_time_ms * 1000;
  }
};

// now: wall clock, for the completion time.
std::string log_line(const Metrics& metrics, std::time_t now);
// The same numbers under the reference's names, for checkpoints' metadata and for the JSON line. Missing values are null.
config::Node to_node(const Metrics& metrics, std::time_t now);
// Whether a line has a key of that name for every model ("phase" too), so that no loss or metric of a
// model may have it.
bool is_common_metric(const std::string& name);

}  // namespace fastllm::train
