// The fields form is a warmup and one decay; the text form is a list of stages. Both are stages
// underneath: a value moves from `from` to `to` along f(c), c the share of the stage that is
// behind.
#include "core/optim/learning_rate.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace fastllm::optim {
namespace {

struct RateStage {
  DecayStyle style = DecayStyle::kConstant;
  int64_t begin = 0, steps = -1;  // steps -1: until the end
  double from = 0, to = 0, power = 1;

  double at(int64_t update) const {
    if (style == DecayStyle::kConstant) return from;
    if (update >= begin + steps) return to;
    const double c = std::pow(double(update - begin) / double(steps), power);
    const double f = style == DecayStyle::kCosine ? 0.5 * (1 - std::cos(std::numbers::pi * c)) : c;
    return from + f * (to - from);
  }
};

[[noreturn]] void refuse(std::string text) { throw Error(Status::kInvalid, std::move(text)); }

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

template <typename Number>
Number parse_number(std::string_view text, const char* what, std::string_view stage) {
  text = trim(text);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool good = error == std::errc() && end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<Number>) good = good && std::isfinite(value);
  if (!good)
    refuse(fmt::format("schedule: expected {} in stage \"{}\", found \"{}\"", what, stage, text));
  return value;
}

RateStage parse_stage(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ',');
  if (parts.size() < 3 || parts.size() > 5)
    refuse(
        fmt::format("schedule: expected stages \"type,num_steps,lr[,end_lr[,power]]\" joined by "
                    "\";\", found \"{}\"",
                    text));
  RateStage stage;
  const std::string_view type = trim(parts[0]);
  if (type == "linear")
    stage.style = DecayStyle::kLinear;
  else if (type == "power")
    stage.style = DecayStyle::kPower;
  else if (type == "cosine")
    stage.style = DecayStyle::kCosine;
  else if (type != "constant")
    refuse(
        fmt::format("schedule: expected constant, linear, power or cosine as the type of stage "
                    "\"{}\", found \"{}\"",
                    text, type));
  stage.steps = parse_number<int64_t>(parts[1], "a whole number of steps", text);
  stage.from = stage.to = parse_number<double>(parts[2], "a learning rate", text);
  const bool constant = stage.style == DecayStyle::kConstant;
  if (constant && parts.size() > 3)
    refuse(fmt::format("schedule: expected a constant stage to have one rate, found more in \"{}\"",
                       text));
  if (!constant && parts.size() < 4)
    refuse(fmt::format(
        "schedule: expected an end rate in stage \"{}\" since it is not constant, found none",
        text));
  if (!constant) stage.to = parse_number<double>(parts[3], "an end rate", text);
  if (parts.size() == 5) stage.power = parse_number<double>(parts[4], "a power", text);
  if (stage.power <= 0)
    refuse(fmt::format("schedule: expected a power above 0 in stage \"{}\", found {}", text,
                       stage.power));
  if (stage.from < 0 || stage.to < 0)
    refuse(fmt::format("schedule: expected learning rates from 0, found stage \"{}\"", text));
  if (!constant && stage.steps < 0)
    refuse(fmt::format(
        "schedule: expected a length in stage \"{}\" since it is not constant, found {}", text,
        stage.steps));
  if (stage.steps == 0)
    refuse(fmt::format("schedule: expected a number of steps other than 0 in stage \"{}\", found 0",
                       text));
  return stage;
}

std::vector<RateStage> parse_schedule(std::string_view text) {
  std::vector<RateStage> stages;
  int64_t begin = 0;
  for (std::string_view part : split(text, ';')) {
    if (!stages.empty() && stages.back().steps < 0)
      refuse(
          fmt::format("schedule: expected a negative number of steps (until the end) in the last "
                      "stage alone, found another stage "
                      "\"{}\" after it",
                      part));
    stages.push_back(parse_stage(part));
    stages.back().begin = begin;
    if (stages.back().steps > 0 && __builtin_add_overflow(begin, stages.back().steps, &begin))
      refuse("schedule: expected less than 2^63 steps in all, found more");
  }
  return stages;
}

std::vector<RateStage> stages_of(const LearningRate& rate) {
  if (!rate.schedule.empty()) return parse_schedule(rate.schedule);
  std::vector<RateStage> stages;
  if (rate.warmup_iterations > 0)
    stages.push_back({DecayStyle::kLinear, 0, rate.warmup_iterations, 0, rate.base, 1});
  RateStage decay{rate.decay_style, rate.warmup_iterations, -1, rate.base,
                  rate.base,        rate.decay_power};
  if (rate.decay_style != DecayStyle::kConstant) {
    decay.steps = rate.decay_iterations.value() - rate.warmup_iterations;
    decay.to = rate.minimum;
  }
  stages.push_back(decay);
  return stages;
}

}  // namespace

void LearningRate::validate() const {
  if (!schedule.empty()) {
    (void)parse_schedule(schedule);
    return;
  }
  if (!std::isfinite(base) || base < 0)
    refuse(fmt::format("base: expected a learning rate from 0, found {}", base));
  if (!std::isfinite(minimum) || minimum < 0)
    refuse(fmt::format("minimum: expected a learning rate from 0, found {}", minimum));
  if (!std::isfinite(decay_power) || decay_power <= 0)
    refuse(fmt::format("decay_power: expected a number above 0, found {}", decay_power));
  if (warmup_iterations < 0)
    refuse(fmt::format("warmup_iterations: expected a number from 0, found {}", warmup_iterations));
  if (decay_style != DecayStyle::kConstant && !decay_iterations)
    refuse(
        "decay_iterations: expected the update at which decay ends since decay_style is not "
        "constant, found none; set it, usually "
        "to training.train_iters");
  if (decay_iterations && *decay_iterations <= warmup_iterations)
    refuse(
        fmt::format("decay_iterations: expected more than warmup_iterations ({}) since warmup is "
                    "included, found {}",
                    warmup_iterations, *decay_iterations));
}

double LearningRate::at(int64_t update) const {
  const std::vector<RateStage> stages = stages_of(*this);
  for (const RateStage& stage : stages)
    if (stage.steps < 0 || update < stage.begin + stage.steps) return stage.at(update);
  return stages.back().at(update);
}

}  // namespace fastllm::optim
