// What becomes of a step's gradients: an update of the weights, or none, where they do not fit the
// loss scale or the step diverged (core/train/divergence.hpp). Says what went wrong, and where it
// began. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/optim/adamw.hpp"
#include "core/train/divergence.hpp"
#include "core/train/executor/executor.hpp"
#include "core/train/metrics/metrics.hpp"
#include "core/train/settings/settings.hpp"
#include "core/train/workspace.hpp"

namespace fastllm::train {

class Updater {
 public:
  // Borrows both.
  Updater(const Settings& settings, Workspace& workspace);

  struct Update {
    bool done = false;  // the weights moved, or would have without schedule.skip_step
    double learning_rate = Metrics::kMissing, gradient_norm = Metrics::kMissing;
  };
  // With the gradients of step i in the grads shard; input and output are that step's. nullopt: the
  // run ends before this update (training.divergence).
  std::optional<Update> update(int64_t i, const StepInput& input, const StepOutput& output);

  // Iterations since they were last taken: without an update, and with a loss that is no number.
  int64_t take_skipped() { return std::exchange(skipped_, 0); }
  int64_t take_nan() { return std::exchange(nan_, 0); }
  // The same without taking them, for a checkpoint, and back.
  int64_t skipped() const { return skipped_; }
  int64_t nan() const { return nan_; }
  void restore(int64_t skipped, int64_t nan) {
    skipped_ = skipped;
    nan_ = nan;
  }
  // The iteration whose numbers that are none went into the weights, which are not worth saving
  // since; 0: none.
  int64_t diverged_at() const { return diverged_at_; }

 private:
  optim::StepReport run_optimizer(double learning_rate, bool skip_non_finite);
  std::optional<Update> leave_out_for_scale(int64_t i, const StepInput& input);
  bool tell(int64_t i, const std::string& wrong, const StepInput& input, bool finite);
  bool append_origin(const StepInput& input, std::string& text, bool& to_tell);

  const Settings& settings_;
  Workspace& workspace_;
  Divergence divergence_;
  int64_t skipped_ = 0, nan_ = 0;
  int64_t diverged_in_a_row_ = 0;  // updates left out, for the policy
  int64_t stuck_in_a_row_ = 0;     // updates left out at a loss scale that cannot become smaller
  int64_t diverged_at_ = 0;
};

}  // namespace fastllm::train
