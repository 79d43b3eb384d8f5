// Dropout of hidden states, layer by layer: which values it drops and how it scales the others, that
// backward drops the same ones, and that nothing but the seed decides on them.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "layers/block.hpp"
#include "layers/embedding.hpp"
#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using namespace testing;

GptConfig config_with(double dropout) {
  GptConfig c = small_config();
  c.absolute_positions = true;
  c.hidden_dropout = dropout;
  return c;
}

TEST(GptDropout, DropsTheShareAndKeepsTheMean) {
  constexpr int64_t kCount = 1 << 20;
  const auto ones = at::ones({kCount}, at::kFloat);
  auto out = at::empty_like(ones);
  for (double share : {0.1, 0.5, 0.9}) {
    apply_dropout(make_dropout(share, 77), kCount, ones.const_data_ptr<float>(), nullptr,
                  out.mutable_data_ptr<float>());
    const double deviation = std::sqrt(share * (1 - share) / double(kCount));
    EXPECT_NEAR(out.eq(0).to(at::kDouble).mean().item<double>(), share, 5 * deviation);
    EXPECT_NEAR(out.max().item<double>(), 1 / (1 - share), 1e-6 / (1 - share));
    EXPECT_EQ(std::get<0>(at::_unique(out)).numel(), 2) << "dropped or scaled, nothing else";
  }
}

TEST(GptDropout, AddsWhatIsLeftToTheBase) {
  const auto values = at::randn({1000}, at::kFloat), base = at::randn_like(values);
  const Dropout dropout = make_dropout(0.4, 3);
  auto out = at::empty_like(values);
  apply_dropout(dropout, 1000, values.const_data_ptr<float>(), base.const_data_ptr<float>(),
                out.mutable_data_ptr<float>());
  int dropped = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const float left = out.data_ptr<float>()[i] - base.data_ptr<float>()[i];
    dropped += left == 0;
    EXPECT_NEAR(left, values.data_ptr<float>()[i] * dropout.factor(uint64_t(i)), 1e-6);
  }
  EXPECT_GT(dropped, 300);
  EXPECT_LT(dropped, 500);
}

// Hidden states of the tokens [4, 7) of each of 3 samples of 10, and of those from the fifth on.
TEST(GptDropout, OfAPartOfEachSampleIsThatOfAll) {
  constexpr int64_t kWidth = 5, kSamples = 3, kTokens = 10;
  const Dropout all = make_dropout(0.4, 3);
  const Dropout part = all.from(4 * kWidth).in_runs(3 * kWidth, (kTokens - 3) * kWidth);
  for (const int64_t first : {0, 5}) {
    const int64_t rows = kSamples * 3 - first;
    const auto values = at::randn({rows, kWidth}, at::kFloat), base = at::randn_like(values);
    auto out = at::empty_like(values), table = at::zeros({rows, kWidth}), gathered = out.clone();
    const auto indices = at::arange(rows, at::kLong);
    const auto own = part.from(first * kWidth);
    const float* const from = values.const_data_ptr<float>();
    apply_dropout(own, values.numel(), from, nullptr, out.mutable_data_ptr<float>());
    gather_rows({from, indices.const_data_ptr<int64_t>()}, {}, rows, kWidth, own,
                gathered.mutable_data_ptr<float>());
    scatter_rows(from, indices.const_data_ptr<int64_t>(), rows, kWidth, own,
                 table.mutable_data_ptr<float>());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < kWidth; ++i) {
        const int64_t sample = (first + row) / 3, token = 4 + (first + row) % 3;
        const auto number = uint64_t((sample * kTokens + token) * kWidth + i);
        const float expected = from[row * kWidth + i] * all.factor(number);
        for (const auto* found : {&out, &gathered, &table})
          EXPECT_EQ(found->const_data_ptr<float>()[row * kWidth + i], expected) << row;
      }
  }
}

struct BlockRig {
  GptConfig config;
  Rotary rotary{config};
  Block block{config, "layers.1", 1, rotary};
  Named weights = random_weights(block);
  at::Tensor x = at::randn({2, 70, 24}, at::kFloat), dy = at::randn_like(x);
  at::Tensor ranges = at::arange(3, at::kInt) * 70;
  explicit BlockRig(const GptConfig& c) : config(c) {}
  RunResult run(const RunOptions& options = {}) {
    return testing::run(block, weights, {x, ranges}, {dy}, options);
  }
};

// Directional derivatives along the input and along every parameter.
TEST(GptDropout, BackwardOfABlockIsTheSlopeOfItsForward) {
  at::manual_seed(5);
  BlockRig rig(config_with(0.3));
  const RunOptions options{.seed = 8};
  const auto actual = rig.run(options);
  const auto value = [&](const Named& weights, const at::Tensor& x) {
    const auto y = run_forward(rig.block, weights, {x, rig.ranges}, false, options)[0];
    return (y.to(at::kDouble) * rig.dy.to(at::kDouble)).sum().item<double>();
  };
  const auto expect_slope = [&](const std::string& what, const at::Tensor& gradient,
                                const std::function<double(double, const at::Tensor&)>& at_step) {
    // Along the gradient itself the slope is the largest there is: its norm.
    const auto direction = gradient / gradient.norm();
    constexpr double kStep = 3e-3;
    const double slope = (at_step(kStep, direction) - at_step(-kStep, direction)) / (2 * kStep);
    const double norm = gradient.to(at::kDouble).norm().item<double>();
    EXPECT_NEAR(slope / norm, 1, 2e-2) << what;
  };
  expect_slope("input", actual.d_input, [&](double step, const at::Tensor& direction) {
    return value(rig.weights, rig.x + direction * step);
  });
  for (const auto& [name, gradient] : actual.gradients) {
    if (gradient.norm().item<double>() < 1e-2) continue;  // key biases change nothing
    expect_slope(name, gradient, [&](double step, const at::Tensor& direction) {
      Named moved = rig.weights;
      moved[name] = moved[name] + direction * step;
      return value(moved, rig.x);
    });
  }
}

TEST(GptDropout, DependsOnTheSeedAndIsOffInEvaluation) {
  at::manual_seed(6);
  BlockRig rig(config_with(0.3));
  const auto first = rig.run({.seed = 1}), again = rig.run({.seed = 1}),
             other = rig.run({.seed = 2});
  EXPECT_TRUE(first.outputs[0].equal(again.outputs[0]));
  EXPECT_TRUE(first.d_input.equal(again.d_input));
  EXPECT_FALSE(first.outputs[0].equal(other.outputs[0]));
  const auto evaluated = run_forward(rig.block, rig.weights, {rig.x, rig.ranges}, false,
                                     {.evaluation = true, .seed = 1})[0];
  at::manual_seed(6);
  BlockRig without(config_with(0));
  EXPECT_TRUE(
      evaluated.equal(run_forward(without.block, without.weights, {without.x, without.ranges})[0]));
  EXPECT_FALSE(evaluated.equal(first.outputs[0]));
}

TEST(GptDropout, HasItsOwnNumbersOnEachBranch) {
  at::manual_seed(6);
  BlockRig rig(config_with(0.5));
  for (const char* branch : {".self_attn.dense.", ".mlp.layer_2."}) {
    // With the other branch at 0 what is added to the input shows the mask of this one.
    Named weights = rig.weights;
    for (auto& [name, tensor] : weights) {
      const bool output =
          name.find(".dense.") != std::string::npos || name.find(".layer_2.") != std::string::npos;
      if (output && name.find(branch) == std::string::npos) tensor = at::zeros_like(tensor);
    }
    const auto y = run_forward(rig.block, weights, {rig.x, rig.ranges}, false, {.seed = 4})[0];
    const auto added = (y - rig.x).flatten();
    const auto use = std::string(branch) == ".mlp.layer_2." ? RandomUse::kMlpOutput
                                                            : RandomUse::kAttentionOutput;
    const Dropout dropout = make_dropout(0.5, stream_key(4, 0, use));
    for (int64_t i = 0; i < added.numel(); ++i)
      ASSERT_EQ(added.data_ptr<float>()[i] == 0, dropout.factor(uint64_t(i)) == 0) << branch << i;
  }
}

TEST(GptDropout, OfEmbeddingsIsLikeAutograd) {
  for (bool positions : {false, true}) {
    at::manual_seed(7);
    auto config = config_with(0.25);
    config.absolute_positions = positions;
    Embedding layer(config);
    const Named weights = random_weights(layer);
    const auto tokens = at::randint(0, 7, {2, 70}, at::kLong);
    const auto places = at::arange(70, at::kLong).expand({2, 70}).contiguous();
    const auto dy = at::randn({2, 70, config.hidden}, at::kFloat);
    std::vector<at::Tensor> inputs{tokens};
    if (positions) inputs.push_back(places);
    const auto actual = run(layer, weights, inputs, {dy}, {.seed = 31});
    const Dropout dropout = make_dropout(0.25, stream_key(31, 0, RandomUse::kEmbedding));
    auto mask = at::empty(dy.sizes(), at::kFloat);
    for (int64_t i = 0; i < mask.numel(); ++i)
      mask.data_ptr<float>()[i] = dropout.factor(uint64_t(i));
    Named w;
    for (const auto& [name, tensor] : weights)
      w[name] = tensor.to(at::kDouble).requires_grad_(true);
    auto y = w.at("layers.0.word_embeddings_weight").index({tokens});
    if (positions) y = y + w.at("layers.0.position_embeddings_weight").index({places});
    y = y * mask.to(at::kDouble);
    (y * dy.to(at::kDouble)).sum().backward();
    EXPECT_LT(distance(actual.outputs[0], y), 2e-6);
    for (const auto& [name, gradient] : actual.gradients)
      EXPECT_LT(distance(gradient, w.at(name).grad()), 2e-6) << name;
  }
}

TEST(GptDropout, GivesTheSameBitsWithAnyNumberOfThreads) {
  at::manual_seed(8);
  auto config = config_with(0.3);
  Embedding layer(config);
  const Named weights = random_weights(layer);
  const auto tokens = at::randint(0, 7, {2, 70}, at::kLong);
  const auto places = at::arange(70, at::kLong).expand({2, 70}).contiguous();
  const auto dy = at::randn({2, 70, config.hidden}, at::kFloat);
  const auto values = at::randn({100000}, at::kFloat);
  const auto with_threads = [&](int threads) {
    at::set_num_threads(threads);
    auto result = run(layer, weights, {tokens, places}, {dy}, {.seed = 5});
    result.outputs.push_back(at::empty_like(values));
    apply_dropout(make_dropout(0.3, 9), values.numel(), values.const_data_ptr<float>(), nullptr,
                  result.outputs[1].mutable_data_ptr<float>());
    return result;
  };
  const int threads = at::get_num_threads();
  const auto one = with_threads(1), three = with_threads(3);
  at::set_num_threads(threads);
  for (size_t i : {0, 1}) EXPECT_TRUE(one.outputs[i].equal(three.outputs[i]));
  for (const auto& [name, gradient] : one.gradients)
    EXPECT_TRUE(gradient.equal(three.gradients.at(name))) << name;
}

TEST(GptDropout, LeavesNoBitToTheMlpsLevelOfRecomputation) {
  at::manual_seed(9);
  BlockRig none(config_with(0.3));
  const auto expected = none.run({.seed = 5});
  for (auto level :
       {MlpRecompute::kActivation, MlpRecompute::kActivationAndInput, MlpRecompute::kFull}) {
    auto config = config_with(0.3);
    config.mlp_recompute = level;
    at::manual_seed(9);
    BlockRig rig(config);
    const auto found = rig.run({.seed = 5});
    EXPECT_TRUE(found.outputs[0].equal(expected.outputs[0]));
    EXPECT_TRUE(found.d_input.equal(expected.d_input));
    for (const auto& [name, gradient] : found.gradients)
      EXPECT_TRUE(gradient.equal(expected.gradients.at(name))) << name;
  }
}

}  // namespace
}  // namespace fastllm::gpt
