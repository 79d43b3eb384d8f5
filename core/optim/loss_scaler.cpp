// The reference's rules, step by step (docs/compatibility.md).
#include "core/optim/loss_scaler.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace fastllm::optim {
namespace {

double first_scale(const ScalerOptions& options) {
  switch (options.kind) {
    case ScalerKind::kConstant:
      return options.constant;
    case ScalerKind::kDynamic:
      return options.initial;
    case ScalerKind::kNone:
      break;
  }
  return 1;
}

}  // namespace

LossScaler::LossScaler(const ScalerOptions& options)
    : options_(options), scale_(first_scale(options)), hysteresis_(options.hysteresis) {}

const char* LossScaler::type() const {
  switch (options_.kind) {
    case ScalerKind::kConstant:
      return "ConstantGradScaler";
    case ScalerKind::kDynamic:
      return "DynamicGradScaler";
    case ScalerKind::kNone:
      break;
  }
  return "NoopGradScaler";
}

void LossScaler::set(double scale) {
  scale_ = scale;
  log::info("Setting loss scale to " + float_text(scale));
}

void LossScaler::start() {
  if (options_.kind != ScalerKind::kNone) set(first_scale(options_));
}

void LossScaler::restore(double scale, int64_t growth, int64_t hysteresis) {
  if (options_.kind == ScalerKind::kNone) return;
  if (options_.kind == ScalerKind::kConstant && scale != options_.constant)
    log::warning(
        fmt::format("The checkpoint goes on with its own loss scale {}, not with "
                    "optimizer.gradient_scaler.constant: {}.",
                    float_text(scale), float_text(options_.constant)));
  set(scale);
  growth_ = growth;
  hysteresis_ = hysteresis;
}

void LossScaler::update(bool skipped) {
  if (options_.kind != ScalerKind::kDynamic) return;
  if (!skipped) {
    // At least, not exactly: the window may be smaller now than it was before a resume.
    if (++growth_ < options_.window) return;
    growth_ = 0;
    hysteresis_ = options_.hysteresis;
    set(scale_ * 2);
    return;
  }
  growth_ = 0;
  if (--hysteresis_ > 0) return;
  const double reduced = std::max(scale_ / 2, options_.minimum);
  if (reduced != scale_) {
    set(reduced);
  } else if (!told_minimum_) {
    told_minimum_ = true;
    log::warning(
        fmt::format("Gradients overflow at the smallest loss scale, {}: updates are skipped until "
                    "they do not; lower optimizer.learning_rate.base or set "
                    "model.distributed.training_dtype to bfloat16.",
                    float_text(scale_)));
  }
}

}  // namespace fastllm::optim
