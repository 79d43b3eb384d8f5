// The keys of the learning rate reach the function of the update that they describe.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/config/resolve.hpp"
#include "core/train/settings/settings.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm::train {
namespace {

Settings made(const std::string& yaml) {
  static const config::Schema schema = test::gpt_schema();
  config::Node root = config::resolve(schema, config::parse_yaml(yaml, "t.yaml")).root;
  test::fill_gpt_defaults(root);
  return make_settings(root, {});
}

TEST(LearningRateSettings, EveryDecayStyleIsItsFormula) {
  const double base = 1e-3, minimum = 1e-4, power = 2;
  const int64_t warmup = 10, end = 110, update = 60;
  const double c = std::pow(double(update - warmup) / double(end - warmup), power);
  const auto decayed = [&](double f) { return base + f * (minimum - base); };
  const std::pair<const char*, double> styles[] = {
      {"constant", base},
      {"linear", decayed(c)},
      {"power", decayed(c)},
      {"cosine", decayed((1 - std::cos(std::numbers::pi * c)) / 2)},
  };
  for (const auto& [style, rate] : styles) {
    const auto learning_rate =
        made(std::string("optimizer: {learning_rate: {base: 1e-3, minimum: 1e-4, decay_power: 2, "
                         "warmup_iterations: 10, decay_iterations: 110, decay_style: ") +
             style + "}}")
            .optimizer.learning_rate;
    EXPECT_NEAR(learning_rate.at(update), rate, 1e-15) << style;
    EXPECT_NEAR(learning_rate.at(1), base / 10, 1e-15) << style;
    EXPECT_NEAR(learning_rate.at(warmup), base, 1e-15) << style;
    const double last = style == std::string("constant") ? base : minimum;
    EXPECT_NEAR(learning_rate.at(end), last, 1e-15) << style;
    EXPECT_NEAR(learning_rate.at(10 * end), last, 1e-15) << style;
  }
}

TEST(DivergenceSettings, EveryPolicyHasItsName) {
  using Policy = DivergenceSettings::Policy;
  const std::pair<const char*, Policy> policies[] = {
      {"stop", Policy::kStop}, {"skip", Policy::kSkip}, {"continue", Policy::kContinue}};
  for (const auto& [name, policy] : policies) {
    EXPECT_EQ(made(std::string("training: {divergence: {policy: ") + name + "}}")
                  .training.divergence.policy,
              policy);
  }
}

}  // namespace
}  // namespace fastllm::train
