// The gpt plugin through the host's own parts (registry, store, executor, optimizer): what a whole
// step must show. Several predictions and all losses have the slopes of what is reported;
// learning-rate scales and initial values reach the weights they name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/optim/adamw.hpp"
#include "core/train/executor/wiring.hpp"
#include "tests/parity/step_rig.hpp"
#include "tests/support/captured_log.hpp"

namespace fastllm {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using namespace testing;
using Rig = StepRig;

// ---------------------------------------------------------------- losses

// What is minimised, from what is reported.
double objective(const train::StepOutput& output, const std::vector<double>& coefficients,
                 double z_loss) {
  double sum = 0;
  for (size_t k = 0; k < coefficients.size(); ++k) {
    const std::string suffix = k == 0 ? "" : "_" + std::to_string(k);
    sum += coefficients[k] * output.losses.at("language_model_loss" + suffix);
    if (z_loss > 0) sum += z_loss * output.losses.at("logit_z_loss" + suffix);
  }
  return sum;
}

void expect_slopes(const Overrides& overrides, const std::vector<double>& coefficients,
                   double z_loss) {
  Rig rig(overrides);
  const std::vector<data::Batch> batches{batch_of(0, 3)};
  const auto trained = rig.train(batches);
  EXPECT_EQ(trained.losses.size(), coefficients.size() * (z_loss > 0 ? 2 : 1));
  const auto gradients = rig.copies("grads");
  for (const auto& [name, weights] : rig.pieces("weights")) {
    const auto& gradient = gradients.at(name);
    const double size = norm(gradient);
    if (size < 1e-3) continue;  // biases of keys
    const std::vector<float> before(weights.begin(), weights.end());
    double value[2];
    for (int side : {0, 1}) {
      const double step = (side ? 1 : -1) * 2e-3 / size;
      for (size_t i = 0; i < before.size(); ++i)
        weights[i] = float(before[i] + step * double(gradient[i]));
      rig.store.invalidate();
      value[side] = objective(rig.evaluate(batches), coefficients, z_loss);
    }
    std::ranges::copy(before, weights.begin());
    EXPECT_NEAR((value[1] - value[0]) / 4e-3 / size, 1, 1e-2) << name;
  }
}

TEST(GptStep, GradientsAreTheSlopesOfOnePrediction) { expect_slopes({}, {1}, 0); }
TEST(GptStep, GradientsAreTheSlopesWithZLoss) {
  expect_slopes({"logit_z_loss=0.05", "logits_scale_factor=1.5"}, {1}, 0.05);
}
TEST(GptStep, GradientsAreTheSlopesOfThreePredictions) {
  expect_slopes({"transformer.gated=true", "transformer.add_linear_biases=false",
                 "transformer.normalization.type=rms_norm", "transformer.rotary.type=default",
                 "prediction_heads=3", "prediction_loss_coefficient=[1,0.5,0.25]",
                 "logit_z_loss=0.01", "cross_entropy_splits=2"},
                {1, 0.5, 0.25}, 0.01);
}
TEST(GptStep, GradientsAreTheSlopesOfTwoPredictionsWithTheirOwnWeights) {
  expect_slopes({"prediction_heads=2", "tie_word_embeddings=false"}, {1, 1}, 0);
}

TEST(GptStep, PredictsFurtherTokensFromTheTrunkBeforeTheLastBlock) {
  // Only the second prediction counts: the block and the head of the first get no gradient.
  Rig rig({"prediction_heads=2", "prediction_loss_coefficient=[0,1]"});
  EXPECT_EQ(train::predicted_tokens(rig.model->description()), 2);
  const std::vector<data::Batch> batches{batch_of(0, 2)};
  const auto output = rig.train(batches);
  for (const auto& [name, gradient] : rig.pieces("grads")) {
    const bool first = name.starts_with("layers.2.") || name.starts_with("layers.3.");
    EXPECT_EQ(norm(gradient) == 0, first) << name;
  }
  // A change of the last trunk block changes the first prediction alone.
  const auto weights = rig.pieces("weights");
  for (float& value : weights.at("layers.2.mlp.layer_2.weight")) value *= 2;
  rig.store.invalidate();
  const auto changed = rig.train(batches);
  EXPECT_NE(changed.losses.at("language_model_loss"), output.losses.at("language_model_loss"));
  EXPECT_EQ(changed.losses.at("language_model_loss_1"), output.losses.at("language_model_loss_1"));
}

TEST(GptStep, HeadsOfSeveralPredictionsShareTheirOutputWeights) {
  for (const char* tied : {"true", "false"}) {
    Rig rig({"prediction_heads=3", std::string("tie_word_embeddings=") + tied});
    int outputs = 0;
    for (const auto& [name, values] : rig.pieces("weights"))
      outputs += name.ends_with("output_weights");
    EXPECT_EQ(outputs, std::string(tied) == "false");
    EXPECT_EQ(rig.layout.description().layers.size(), 8u);  // 4, and twice a block and a head
  }
}

TEST(GptStep, PredictsFromTheEmbeddingWithoutBlocksOfItsOwn) {
  Rig rig({"prediction_heads=2", "transformer.num_layers=0"});
  const auto output = rig.train({batch_of(0, 2)});
  EXPECT_GT(output.losses.at("language_model_loss_1"), 1);
  for (const auto& [name, gradient] : rig.pieces("grads")) {
    if (name.ends_with("key_value.bias")) continue;  // those of keys change nothing
    EXPECT_GT(norm(gradient), 0) << name;
  }
}

// ---------------------------------------------------------------- learning-rate scales

// By how much each kind of weight moves in one step, frozen and scaled by a half.
TEST(GptStep, LearningRateScalesReachThePartsTheyName) {
  struct Scale {
    std::string key;  // with a place for the value
    std::function<bool(const std::string&)> part;
  };
  const auto contains = [](std::string text) {
    return [text](const std::string& name) { return name.find(text) != std::string::npos; };
  };
  const std::vector<Scale> scales{
      {"transformer.mlp_lr_scale=[@]", contains(".mlp.")},
      {"transformer.attention_lr_scale=@", contains(".self_attn.")},
      {"transformer.embeddings_lr_scale=@", contains("_embeddings_weight")},
      {"transformer.output_lr_scale=@", contains("output_weights")},
      {"transformer.norm_lr_scale=@", contains("norm")},
  };
  const std::vector<data::Batch> batches{batch_of(0, 2)};
  const auto moved = [&](const Overrides& overrides) {
    Rig rig(with({"tie_word_embeddings=false", "prediction_heads=2"}, overrides));
    const auto before = rig.copies("weights");
    optim::AdamW optimizer(rig.store, {.weight_decay = 0, .gradient_norm_clipping = 1e9});
    rig.train(batches);
    optimizer.step(1e-2);
    std::map<std::string, double> result;
    for (const auto& [name, after] : rig.pieces("weights")) {
      std::vector<float> difference(after.begin(), after.end());
      for (size_t i = 0; i < difference.size(); ++i) difference[i] -= before.at(name)[i];
      result[name] = norm(difference);
    }
    return result;
  };
  const auto plain = moved({});
  for (const Scale& scale : scales) {
    for (double value : {0.0, 0.5}) {
      std::string key = scale.key;
      key.replace(key.find('@'), 1, std::to_string(value));
      SCOPED_TRACE(key);
      const auto found = moved({key});
      ASSERT_EQ(found.size(), plain.size());
      int parts = 0;
      for (const auto& [name, distance] : plain) {
        ASSERT_GT(distance, 0) << name;
        const double expected = scale.part(name) ? value * distance : distance;
        EXPECT_NEAR(found.at(name), expected, 1e-3 * distance) << name;
        parts += scale.part(name);
      }
      EXPECT_GT(parts, 0);
    }
  }
}

// ---------------------------------------------------------------- what is logged

TEST(GptStep, LogsTensorsInsideBlocksByLevel) {
  const auto logged = [](const Overrides& overrides) {
    Rig rig(overrides);
    const std::vector<data::Batch> batches{batch_of(0, 2)};
    return test::logged([&] { rig.train(batches); });
  };
  EXPECT_EQ(logged({}), "");
  const std::string shapes = logged({"transformer.debug_transformer=1"});
  EXPECT_EQ(std::ranges::count(shapes, '\n'), 2 * 8);  // four tensors each way in two blocks
  EXPECT_THAT(shapes, AllOf(HasSubstr("layers.1 norm_1 output [48, 16]\n"),
                            HasSubstr("layers.2 gradient of mlp output [48, 16]\n")));
  EXPECT_THAT(logged({"transformer.debug_transformer=2"}),
              ContainsRegex("layers.2 attention output \\[48, 16\\] mean [-.e0-9]+ deviation "
                            "[.e0-9]+\n"));
  EXPECT_THAT(logged({"transformer.debug_transformer=4"}),
              ContainsRegex("norm_2 output \\[48, 16\\] mean [-.e0-9]+ deviation [.e0-9]+ values "
                            "[-.e0-9]+ [-.e0-9]+\n"));
  EXPECT_THAT(logged({"transformer.debug_transformer_memory=true"}),
              ContainsRegex("layers.1 mlp output \\| resident [0-9.]+ MiB\n"));
}

// ---------------------------------------------------------------- initial values

struct Statistics {
  double deviation, low, high;
};
Statistics statistics(std::span<const float> values) {
  const auto [low, high] = std::ranges::minmax_element(values);
  return {norm(values) / std::sqrt(double(values.size())), *low, *high};
}

TEST(GptStep, InitialValuesFollowTheFieldsOfTheirGroup) {
  // key suffix or full key of the three fields, and a weight of the group
  const std::vector<std::array<std::string, 4>> groups{
      {"transformer.init_method_std", "transformer.init_method_min", "transformer.init_method_max",
       "layers.1.mlp.layer_1.weight"},
      {"transformer.init_method_std_qkv", "transformer.init_method_min_qkv",
       "transformer.init_method_max_qkv", "layers.2.self_attn.key_value.weight"},
      {"transformer.init_method_std_attn_proj", "transformer.init_method_min_attn_proj",
       "transformer.init_method_max_attn_proj", "layers.1.self_attn.dense.weight"},
      {"transformer.init_method_std_mlp_1", "transformer.init_method_min_mlp_1",
       "transformer.init_method_max_mlp_1", "layers.2.mlp.layer_1.weight"},
      {"transformer.init_method_std_mlp_2", "transformer.init_method_min_mlp_2",
       "transformer.init_method_max_mlp_2", "layers.2.mlp.layer_2.weight"},
      {"init_method_std_embed", "init_method_min_embed", "init_method_max_embed",
       "layers.0.position_embeddings_weight"},
  };
  const Overrides big{"transformer.hidden_size=64", "transformer.kv_channels=16"};
  for (const auto& [deviation, low, high, weight] : groups) {
    SCOPED_TRACE(deviation);
    Rig wide(with(big, {deviation + "=0.7"}));
    const auto values = statistics(wide.pieces("weights").at(weight));
    EXPECT_NEAR(values.deviation, 0.7, 0.7 * 0.05);
    EXPECT_LT(values.low, -1.4);
    EXPECT_GT(values.high, 1.4);
    Rig clamped(with(big, {deviation + "=0.7", low + "=-0.5", high + "=0.25"}));
    const auto cut = statistics(clamped.pieces("weights").at(weight));
    EXPECT_EQ(cut.low, -0.5);
    EXPECT_EQ(cut.high, 0.25);
    // Another group keeps its own.
    const std::string other = weight == "layers.1.self_attn.dense.weight"
                                  ? "layers.1.mlp.layer_2.weight"
                                  : "layers.1.self_attn.dense.weight";
    if (deviation != "transformer.init_method_std") {
      EXPECT_NEAR(statistics(wide.pieces("weights").at(other)).deviation, 0.3 / 2, 0.01);
    }
  }
}

TEST(GptStep, BiasesStartAtZeroOrLikeTheirWeight) {
  Rig zero(Overrides{}), random({"transformer.random_bias_init=true"});
  for (const auto& [name, values] : zero.pieces("weights")) {
    if (!name.ends_with(".bias")) continue;
    EXPECT_EQ(norm(values), 0) << name;
  }
  int biases = 0;
  for (const auto& [name, values] : random.pieces("weights")) {
    if (!name.ends_with(".bias") || name.find("norm") != std::string::npos) continue;
    ++biases;
    const double expected =
        name.find("dense") != std::string::npos || name.find("layer_2") != std::string::npos
            ? 0.3 / 2
            : 0.3;
    EXPECT_THAT(statistics(values).deviation, AllOf(Ge(expected * 0.5), Le(expected * 1.5)))
        << name;
  }
  EXPECT_EQ(biases, 10);
}

TEST(GptStep, NormsSpreadAroundTheirDefaultByTheInitializationRange) {
  for (bool centered : {false, true}) {
    Rig rig(
        {"transformer.normalization.initialization_range=0.25",
         std::string("transformer.normalization.zero_centered=") + (centered ? "true" : "false")});
    for (const auto& [name, values] : rig.pieces("weights")) {
      if (name.find("norm") == std::string::npos) continue;
      const double middle = name.ends_with(".bias") || centered ? 0 : 1;
      const auto found = statistics(values);
      EXPECT_THAT(found.low, AllOf(Ge(middle - 0.25), Le(middle - 0.05))) << name;
      EXPECT_THAT(found.high, AllOf(Ge(middle + 0.05), Le(middle + 0.25))) << name;
    }
  }
}

}  // namespace
}  // namespace fastllm
