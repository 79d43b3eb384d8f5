#include "core/train/divergence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/base/tensor_values.hpp"
#include "core/train/parameter_views.hpp"

namespace fastllm::train {
namespace {

constexpr size_t kMeanSteps = 50;    // loss_factor is measured by the mean of so many good steps
constexpr size_t kFewestSteps = 10;  // and not before there are so many

// "3 of 512 values, the first nan at [0, 17]"; nullopt: all are finite.
std::optional<std::string> non_finite(const DLTensor& tensor) {
  if (!TensorValues::can_read(tensor)) return std::nullopt;
  const TensorValues values(tensor);
  int64_t count = 0, first = 0;
  for (int64_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    if (count == 0) first = i;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return fmt::format("{} of {} values, the first {} at {}", count, values.size(), values[first],
                     values.position(first));
}

// The first parameter in that state with a value that is not finite; reverse: looks from the last
// one up, as backward makes them.
std::string find_parameter(shard::Store& store, const std::string& state, bool reverse) {
  const model::Description& d = store.layout().description();
  std::vector<ParameterView> views = parameter_views(store, state);
  if (reverse) std::reverse(views.begin(), views.end());
  for (const ParameterView& view : views) {
    const model::Parameter& p = d.parameters[size_t(view.parameter)];
    if (auto found = non_finite(view.tensor)) {
      return fmt::format("{}{} of layer {} ({})",
                         state == "weights" ? "weight " : "the gradient of ", p.name,
                         d.layers[size_t(p.first_layer)].name, *found);
    }
  }
  return "";
}

// Remembers the first output or gradient of one that is not finite. Looks at what is made anyhow:
// a step that fits the memory can be repeated in it.
class FirstNonFinite : public Observer {
 public:
  explicit FirstNonFinite(const model::Description& description) : description_(description) {}
  Wants wants(const Output&) const override { return Wants::kIfMade; }
  void see(const Seen& seen) override {
    if (!found.empty()) return;
    const auto values = non_finite(seen.tensor);
    if (!values) return;
    const auto& [number, output, gradient] = seen.what;
    const model::Layer& layer = description_.layers[size_t(number)];
    found = fmt::format("{} {} of layer {} ({}) in {} of micro-batch {}",
                        gradient ? "the gradient of output" : "output",
                        layer.outputs[size_t(output)].name, layer.name, *values,
                        gradient ? "backward" : "forward", seen.micro_batch);
  }

  std::string found;  // "": none so far

 private:
  const model::Description& description_;
};

}  // namespace

std::string Divergence::examine(const std::map<std::string, double>& losses) const {
  for (const auto& [name, value] : losses)
    if (!std::isfinite(value)) return fmt::format("{} is {}", name, value);
  const auto main = losses.find(main_loss_);
  if (main == losses.end()) return "";
  const double loss = main->second;
  if (settings_.loss_threshold && loss > *settings_.loss_threshold) {
    return fmt::format("{} is {:.6g}, above training.divergence.loss_threshold ({:.6g})",
                       main_loss_, loss, *settings_.loss_threshold);
  }
  if (settings_.loss_factor && recent_.size() >= kFewestSteps &&
      loss > *settings_.loss_factor * mean()) {
    return fmt::format(
        "{} is {:.6g}, more than training.divergence.loss_factor ({:.6g}) times its mean over the "
        "last {} steps ({:.6g})",
        main_loss_, loss, *settings_.loss_factor, recent_.size(), mean());
  }
  return "";
}

std::string Divergence::examine_norm(double gradient_norm) {
  return std::isfinite(gradient_norm) ? "" : fmt::format("the gradient norm is {}", gradient_norm);
}

bool Divergence::ends_run(int64_t skipped_in_a_row) const {
  switch (settings_.policy) {
    case DivergenceSettings::Policy::kStop:
      return true;
    case DivergenceSettings::Policy::kSkip:
      return skipped_in_a_row >= settings_.max_skipped;
    case DivergenceSettings::Policy::kContinue:
      return false;
  }
  return true;
}

void Divergence::went_well(const std::map<std::string, double>& losses) {
  const auto main = losses.find(main_loss_);
  if (!settings_.loss_factor || main == losses.end()) return;
  recent_.push_back(main->second);
  if (recent_.size() > kMeanSteps) recent_.pop_front();
}

double Divergence::mean() const {
  return std::accumulate(recent_.begin(), recent_.end(), 0.0) / double(recent_.size());
}

bool Divergence::has_non_finite(const std::map<std::string, double>& losses) {
  for (const auto& [name, value] : losses)
    if (!std::isfinite(value)) return true;
  return false;
}

Origin find_non_finite(Workspace& w, const StepInput& step) {
  std::string first = find_parameter(w.store, "weights", false);
  const int size = w.ranks.size(), rank = w.ranks.world ? w.ranks.world->rank() : 0;
  // Larger the lower the rank; 0: no rank found any.
  const auto found = [&] { return int(w.ranks.most(first.empty() ? 0 : size - rank)); };
  int anywhere = found();
  if (anywhere == 0) {
    FirstNonFinite observer(w.layout.description());
    w.executor.train(step, w.training_schedule, &observer);
    first = observer.found;
    anywhere = found();
  }
  if (anywhere == 0) {
    first = find_parameter(w.store, "grads", true);
    anywhere = found();
  }
  const std::string where = w.ranks.world ? "The first on this rank" : "The first";
  const int teller = anywhere > 0 ? size - anywhere : 0;
  if (!first.empty()) return {where + " that is not finite: " + first + ".", rank == teller};
  if (anywhere > 0)
    return {fmt::format("What is not finite began on rank {}; see what it says.", teller), false};
  return {"Repeating the step gave finite numbers alone, so memory or processor may be faulty.",
          rank == teller};
}

}  // namespace fastllm::train
