// Loss scaling: gradients of a loss times `scale` stay above the smallest numbers of float16. They
// are divided by it as the optimizer reads them; where one is not finite, the update is skipped
// (docs/users/precision.md; Micikevicius et al. 2018). One thread.
#pragma once

#include <cstdint>

namespace fastllm::optim {

enum class ScalerKind {
  kNone,      // 1; nothing is checked, every update counts
  kConstant,  // fixed
  kDynamic    // doubles after `window` good updates, halves when `hysteresis` updates failed
};

struct ScalerOptions {
  ScalerKind kind = ScalerKind::kNone;
  double constant = 1;
  double initial = 65536, minimum = 1;
  int64_t window = 1000, hysteresis = 2;
};

class LossScaler {
 public:
  explicit LossScaler(const ScalerOptions& options);

  const char* type() const;  // as checkpoints spell it: NoopGradScaler, ...
  double scale() const { return scale_; }
  bool skips_non_finite() const { return options_.kind != ScalerKind::kNone; }
  // Failed updates will lower the scale, now or later.
  bool can_shrink() const {
    return options_.kind == ScalerKind::kDynamic && scale_ > options_.minimum;
  }

  // After each update; skipped: there was a gradient that is not finite. Logs a changed scale.
  void update(bool skipped);

  // The counters of the dynamic scaler: good updates since the last change of either, and failures
  // left until the scale halves (from 0 down: each one does).
  int64_t growth() const { return growth_; }
  int64_t hysteresis() const { return hysteresis_; }

  // Logs the first scale.
  void start();
  // Goes on with what a checkpoint holds, and logs it; a constant that is configured otherwise now
  // gets a warning. Without scaling nothing is restored.
  void restore(double scale, int64_t growth, int64_t hysteresis);

 private:
  void set(double scale);

  ScalerOptions options_;
  double scale_;
  int64_t growth_ = 0, hysteresis_;
  bool told_minimum_ = false;
};

}  // namespace fastllm::optim
