#include "core/train/update.hpp"

#include <fmt/format.h>

#include <exception>

#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"

namespace fastllm::train {
namespace {

// What one rank is to tell for all stands in the logs of all.
void warn(const std::string& text, bool to_tell) {
  log::write(to_tell ? log::Level::kWarning : log::Level::kInfo, text);
}

}  // namespace

Updater::Updater(const Settings& settings, Workspace& workspace)
    : settings_(settings),
      workspace_(workspace),
      divergence_(settings.training.divergence, main_loss(workspace.layout.description())) {}

optim::StepReport Updater::run_optimizer(double learning_rate, bool skip_non_finite) {
  const profile::Span span("optimizer", "adamw");
  return workspace_.optimizer.step(learning_rate, {workspace_.scaler.scale(), skip_non_finite});
}

std::optional<Updater::Update> Updater::update(int64_t i, const StepInput& input,
                                               const StepOutput& output) {
  optim::LossScaler& scaler = workspace_.scaler;
  const bool finite = !Divergence::has_non_finite(output.losses),
             scaled = scaler.skips_non_finite();
  if (!finite) ++nan_;
  if (!finite && scaled) return leave_out_for_scale(i, input);
  std::string wrong = divergence_.examine(output.losses);
  bool takes_place = wrong.empty() || tell(i, wrong, input, finite);
  Update update;
  if (takes_place && !settings_.skip_step) {
    const double rate = settings_.optimizer.learning_rate.at(workspace_.optimizer.current_step + 1);
    optim::StepReport step = run_optimizer(rate, true);
    if (step.skipped && scaled) return leave_out_for_scale(i, input);
    scaler.update(false);
    if (step.skipped) {
      wrong = Divergence::examine_norm(step.gradient_norm);
      takes_place = tell(i, wrong, input, false);
      if (takes_place) step = run_optimizer(rate, false);
    }
    if (takes_place) {
      update.learning_rate = rate;
      update.gradient_norm = step.gradient_norm;
    }
  }
  update.done = takes_place;
  if (!update.done) {
    ++skipped_;
    if (divergence_.ends_run(++diverged_in_a_row_)) return std::nullopt;
    return update;
  }
  diverged_in_a_row_ = stuck_in_a_row_ = 0;
  if (wrong.empty()) divergence_.went_well(output.losses);
  return update;
}

// On its way to a scale that fits that is no divergence. Where the scale cannot move it is one as
// soon as it went on for long enough not to be the odd batch.
std::optional<Updater::Update> Updater::leave_out_for_scale(int64_t i, const StepInput& input) {
  optim::LossScaler& scaler = workspace_.scaler;
  const bool stuck = !scaler.can_shrink();
  const double scale = scaler.scale();
  scaler.update(true);
  ++skipped_;
  stuck_in_a_row_ = stuck ? stuck_in_a_row_ + 1 : 0;
  if (stuck_in_a_row_ != settings_.training.divergence.max_skipped) return Update{};
  const bool constant = settings_.optimizer.scaler.kind == optim::ScalerKind::kConstant;
  std::string text = fmt::format(
      "Iteration {} diverged: no update took place {} times in a row, since losses or gradients "
      "are "
      "not finite at the {} loss scale {} (optimizer.gradient_scaler.{}).",
      i, stuck_in_a_row_, constant ? "constant" : "smallest", float_text(scale),
      constant ? "constant" : "minimum");
  bool to_tell = workspace_.ranks.main();
  append_origin(input, text, to_tell);
  warn(text, to_tell);
  if (divergence_.protects_weights()) return std::nullopt;
  return Update{};
}

// Looks for the place of origin at the first bad step of a row: that costs another step. Where
// what is no number goes into the weights nothing is saved from here on, so that the last good
// checkpoint stays the newest. finite: the loss is just too large. Gives whether the update takes
// place even so.
bool Updater::tell(int64_t i, const std::string& wrong, const StepInput& input, bool finite) {
  const bool protects = divergence_.protects_weights();
  if (!protects && diverged_at_ > 0) return true;
  std::string text = fmt::format("Iteration {} diverged: {}.", i, wrong);
  bool whole = true, to_tell = workspace_.ranks.main();
  if (!finite && diverged_in_a_row_ == 0) whole = append_origin(input, text, to_tell);
  const bool takes_place = !protects && whole;
  if (!takes_place) {
    text += " Its update is left out.";
  } else if (finite) {
    text += " Its update takes place even so.";
  } else {
    diverged_at_ = i;
    text +=
        " Nothing is saved from here on: stop, lower optimizer.learning_rate.base, and go on "
        "from the last checkpoint.";
  }
  warn(text, to_tell);
  return takes_place;
}

// false: the search broke off, and the gradients are no longer those of the step.
bool Updater::append_origin(const StepInput& input, std::string& text, bool& to_tell) {
  try {
    const Origin origin = find_non_finite(workspace_, input);
    text += " " + origin.text;
    to_tell = origin.to_tell;
    return true;
  } catch (const std::exception& e) {
    if (workspace_.ranks.world) throw;  // the others are in the middle of the step
    text += fmt::format(" (could not repeat the step: {})", e.what());
    return false;
  }
}

}  // namespace fastllm::train
