// Whether a step went wrong beyond repair: a loss or a gradient that is not finite, or a loss that
// left all bounds; what follows from it; and where it began (docs/users/training.md).
//
//   training.divergence.policy   the step's update      then
//   stop (default)               does not take place    the run ends with Outcome::kDiverged
//   skip                         does not take place    the run goes on; too many in a row: as stop
//   continue                     takes place            the run goes on; after what is no number it
//                                                       saves nothing any more
//
// Costs nothing while all is well: it looks at numbers that are there anyhow.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "core/train/executor/executor.hpp"
#include "core/train/settings/settings.hpp"
#include "core/train/workspace.hpp"

namespace fastllm::train {

class Divergence {
 public:
  // main_loss: the one that has bounds. Others have another scale, and may not even be weighted.
  Divergence(const DivergenceSettings& settings, std::string main_loss)
      : settings_(settings), main_loss_(std::move(main_loss)) {}

  // After backward, before the update. "": well; else what is wrong, "loss x is nan".
  std::string examine(const std::map<std::string, double>& losses) const;
  // The same for the gradients' norm, which the optimizer computes.
  static std::string examine_norm(double gradient_norm);

  // Whether the update must not take place when something is wrong.
  bool protects_weights() const {
    return settings_.policy != DivergenceSettings::Policy::kContinue;
  }

  // The verdict on a step with something wrong. skipped_in_a_row counts this one.
  bool ends_run(int64_t skipped_in_a_row) const;
  // A step that went well: its loss is in the mean that loss_factor is measured by.
  void went_well(const std::map<std::string, double>& losses);

  static bool has_non_finite(const std::map<std::string, double>& losses);

 private:
  const DivergenceSettings settings_;
  const std::string main_loss_;
  std::deque<double> recent_;  // the main loss of the last good steps
  double mean() const;
};

// Runs the step again, with the weights it had, and names what was first not finite, in the order
// of the computation: a weight, an output in forward, its gradient in backward, or a parameter's
// gradient. Leaves the grads shard as the step does. All ranks ask; each looks at what is its own.
struct Origin {
  std::string text;      // one sentence
  bool to_tell = false;  // this rank is the one of all that has most to say
};
Origin find_non_finite(Workspace& workspace, const StepInput& step);

}  // namespace fastllm::train
