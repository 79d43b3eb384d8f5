// Hand-written backwards against autograd: each layer is written once more as a plain formula in
// double precision, from the same float32 weights, and every output and gradient is compared. Then
// what the host relies on: overwrite and add, frozen parameters, no input gradient, recomputation
// to the bit.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/block.hpp"
#include "layers/embedding.hpp"
#include "layers/head.hpp"
#include "tests/parity/layer_harness.hpp"
#include "tests/parity/plain_rotary.hpp"

namespace fastllm::gpt {
namespace {

using namespace testing;

constexpr double kTolerance = 2e-6;  // of the norm, per tensor: float32 against double
constexpr int64_t kBatch = 2,
                  kSequence =
                      70;  // more rows than one piece of a column sum, and no multiple of one

// ---------------------------------------------------------------- the plain formulas

Named leaves(const Named& weights) {
  Named result;
  for (const auto& [name, tensor] : weights)
    result[name] = tensor.to(at::kDouble).requires_grad_(true);
  return result;
}

at::Tensor plain_norm(const GptConfig& c, const Named& w, const std::string& name,
                      const at::Tensor& x) {
  const auto centered = c.norm.kind == NormKind::kLayer ? x - x.mean({-1}, true) : x;
  const auto normal = centered / (centered.pow(2).mean({-1}, true) + c.norm.epsilon).sqrt();
  auto weight = w.at(name + ".weight");
  if (c.norm.zero_centered) weight = weight + 1;
  const auto y = normal * weight;
  return c.norm.kind == NormKind::kLayer ? y + w.at(name + ".bias") : y;
}

at::Tensor plain_linear(const Named& w, const std::string& name, const at::Tensor& x,
                        bool transposed = false) {
  const auto y =
      transposed ? x.matmul(w.at(name + ".weight")) : x.matmul(w.at(name + ".weight").t());
  return w.contains(name + ".bias") ? y + w.at(name + ".bias") : y;
}

at::Tensor plain_activation(Activation kind, const at::Tensor& x) {
  switch (kind) {
    case Activation::kGelu:
      return 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))).tanh());
    case Activation::kSilu:
      return x * x.sigmoid();
    case Activation::kRelu:
      return x.relu();
    case Activation::kSquaredRelu:
      return x.relu().pow(2);
  }
  return {};
}

at::Tensor plain_head_norm(const GptConfig& c, const at::Tensor& weight, const at::Tensor& x) {
  const auto y = x / (x.pow(2).mean({-1}, true) + c.norm.epsilon).sqrt();
  return y * (c.norm.zero_centered ? weight + 1 : weight);
}

// With the window of block 1.
at::Tensor plain_attention(const GptConfig& c, const Named& w, const std::string& name,
                           const at::Tensor& x, const at::Tensor& positions) {
  const auto heads = [&](const at::Tensor& rows, int64_t count) {
    return rows.unflatten(-1, {count, c.head_width}).transpose(1, 2);
  };
  auto query = heads(plain_linear(w, name + ".query", x), c.heads);
  const auto key_value = plain_linear(w, name + ".key_value", x);
  const int64_t width = c.groups * c.head_width;
  auto key = heads(key_value.narrow(-1, 0, width), c.groups);
  auto value = heads(key_value.narrow(-1, width, width), c.groups);
  if (c.query_key_norm) {
    query = plain_head_norm(c, w.at(name + ".query_norm.weight"), query);
    key = plain_head_norm(c, w.at(name + ".key_norm.weight"), key);
  }
  if (c.rotary.kind != RotaryKind::kNone) {
    query = plain_rotary(c, query, positions);
    key = plain_rotary(c, key, positions);
  }
  key = key.repeat_interleave(c.heads / c.groups, 1);
  value = value.repeat_interleave(c.heads / c.groups, 1);
  const auto scores = query.matmul(key.transpose(-1, -2)) * c.softmax_scale;
  const auto all = at::ones({x.size(1), x.size(1)}, at::kBool);
  auto unseen = all.triu(1);
  if (const int64_t window = c.window_of(1)) unseen = unseen | all.tril(-window);
  const auto out = scores.masked_fill(unseen, -INFINITY).softmax(-1).matmul(value);
  return plain_linear(w, name + ".dense", out.transpose(1, 2).flatten(2));
}

at::Tensor plain_block(const GptConfig& c, const Named& w, const at::Tensor& x,
                       const at::Tensor& positions) {
  const auto mid = x + plain_attention(c, w, "layers.1.self_attn",
                                       plain_norm(c, w, "layers.1.norm_1", x), positions);
  auto hidden = plain_linear(w, "layers.1.mlp.layer_1", plain_norm(c, w, "layers.1.norm_2", mid));
  if (c.gated)
    hidden = plain_activation(c.activation, hidden.narrow(-1, 0, c.ffn)) *
             hidden.narrow(-1, c.ffn, c.ffn);
  else
    hidden = plain_activation(c.activation, hidden);
  return mid + plain_linear(w, "layers.1.mlp.layer_2", hidden, true);
}

// ---------------------------------------------------------------- comparing

struct BlockCase {
  GptConfig config;
  at::Tensor x = at::randn({kBatch, kSequence, config.hidden}, at::kFloat);
  at::Tensor dy = at::randn_like(x);
  at::Tensor positions = at::arange(kSequence, at::kLong).expand({kBatch, kSequence}).contiguous();
  at::Tensor ranges = at::arange(kBatch + 1, at::kInt) * kSequence;
  Rotary rotary{config};
  Block block{config, "layers.1", 1, rotary};
  Named weights = random_weights(block);

  explicit BlockCase(const GptConfig& c) : config(c) {}
  std::vector<at::Tensor> inputs() const {
    if (rotary.enabled()) return {x, ranges, positions};
    return {x, ranges};
  }
  RunResult run(const RunOptions& options = {}) {
    return testing::run(block, weights, inputs(), {dy}, options);
  }
};

void expect_like_autograd(const GptConfig& config, double tolerance = kTolerance) {
  at::manual_seed(7);
  BlockCase c(config);
  const RunResult actual = c.run();
  const auto x = c.x.to(at::kDouble).requires_grad_(true);
  const Named w = leaves(c.weights);
  const auto y = plain_block(config, w, x, c.positions);
  (y * c.dy.to(at::kDouble)).sum().backward();
  EXPECT_LT(distance(actual.outputs[0], y), tolerance);
  EXPECT_LT(distance(actual.d_input, x.grad()), tolerance);
  for (const auto& [name, gradient] : actual.gradients) {
    EXPECT_LT(distance(gradient, w.at(name).grad()), tolerance) << name;
  }
}

TEST(GptBlock, IsLikeAutogradWithLayerNormAndBiases) { expect_like_autograd(small_config()); }

TEST(GptBlock, IsLikeAutogradWithRmsNormRotaryAndGate) {
  auto c = small_config();
  c.norm.kind = NormKind::kRms;
  c.rotary.kind = RotaryKind::kDefault;
  c.gated = true;
  c.activation = Activation::kSilu;
  c.bias_qkv = c.bias_dense = c.bias_mlp = false;
  expect_like_autograd(c);
}

TEST(GptBlock, IsLikeAutogradWithInterleavedRotary) {
  auto c = small_config();
  c.rotary.kind = RotaryKind::kDefault;
  c.rotary.interleaved = true;
  c.rotary.theta = 500;
  expect_like_autograd(c);
}

TEST(GptBlock, IsLikeAutogradWithEveryScaledRotary) {
  for (auto kind : {RotaryKind::kLinear, RotaryKind::kLlama3, RotaryKind::kYarn}) {
    SCOPED_TRACE(int(kind));
    auto c = small_config();
    c.head_width = 16;  // pairs on both sides of each blend, and in it
    c.softmax_scale = 0.25;
    c.rotary.kind = kind;
    c.rotary.scale_factor = 4;
    c.rotary.original_context_length = 64;
    c.rotary.beta_fast = 4;
    if (kind == RotaryKind::kYarn) c.rotary.attention_factor = 0.1 * std::log(4.0) + 1;
    const auto ratio =
        plain_frequencies(c) * at::pow(c.rotary.theta, at::arange(8, at::kDouble) / 8);
    EXPECT_EQ(ratio[0].item<double>() == 1, kind != RotaryKind::kLinear);
    EXPECT_NEAR(ratio[7].item<double>(), 0.25, 1e-12);
    expect_like_autograd(c);
  }
}

TEST(GptBlock, IsLikeAutogradWithAWindow) {
  for (int64_t window : {1, 5, 70, 100}) {
    SCOPED_TRACE(window);
    auto c = small_config();
    c.rotary.kind = RotaryKind::kDefault;
    c.window = window;
    expect_like_autograd(c);
  }
}

TEST(GptBlock, IsLikeAutogradWithNormalizedQueriesAndKeys) {
  for (int64_t groups : {1, 2, 4}) {
    for (bool zero_centered : {false, true}) {
      auto c = small_config();
      c.norm.kind = NormKind::kRms;
      c.norm.zero_centered = zero_centered;
      c.rotary.kind = RotaryKind::kDefault;
      c.groups = groups;
      c.head_width = 10;
      c.query_key_norm = true;
      // The norms' weights get sums over all heads and tokens, most of which cancel.
      expect_like_autograd(c, 2 * kTolerance);
    }
  }
}

// Blocks are counted from 1; those below max_window_layers see everything.
TEST(GptBlock, HasAWindowFromTheConfiguredBlockOn) {
  auto c = small_config();
  c.window = 3;
  c.first_window_block = 2;
  for (int64_t number : {1, 2}) {
    at::manual_seed(12);
    Rotary rotary(c);
    Block block(c, "layers.1", number, rotary);
    const Named weights = random_weights(block);
    const auto ranges = at::arange(kBatch + 1, at::kInt) * kSequence;
    const auto x = at::randn({kBatch, kSequence, c.hidden}, at::kFloat);
    const auto changed = x.clone();
    changed.select(1, 0).add_(1);  // the first token of each sample
    const auto before = run_forward(block, weights, {x, ranges})[0];
    const auto after = run_forward(block, weights, {changed, ranges})[0];
    const auto last_that_sees_it = number == 1 ? kSequence - 1 : 2;
    EXPECT_FALSE(after.select(1, last_that_sees_it).equal(before.select(1, last_that_sees_it)));
    if (number == 2) {
      EXPECT_TRUE(after.narrow(1, 3, kSequence - 3).equal(before.narrow(1, 3, kSequence - 3)));
    }
  }
}

TEST(GptBlock, IsLikeAutogradForEveryHeadGrouping) {
  for (int64_t groups : {1, 2, 4}) {
    SCOPED_TRACE(groups);
    auto c = small_config();
    c.groups = groups;
    expect_like_autograd(c);
  }
}

TEST(GptBlock, IsLikeAutogradForEveryActivation) {
  for (auto activation :
       {Activation::kGelu, Activation::kSilu, Activation::kRelu, Activation::kSquaredRelu}) {
    for (bool gated : {false, true}) {
      SCOPED_TRACE(int(activation) * 10 + gated);
      auto c = small_config();
      c.activation = activation;
      c.gated = gated;
      expect_like_autograd(c);
    }
  }
}

TEST(GptBlock, IsLikeAutogradWithZeroCenteredNorms) {
  for (auto kind : {NormKind::kLayer, NormKind::kRms}) {
    auto c = small_config();
    c.norm.kind = kind;
    c.norm.zero_centered = true;
    c.norm.epsilon = 1e-3;
    expect_like_autograd(c);
  }
}

TEST(GptBlock, IsLikeAutogradWithHeadsThatDoNotFillTheHiddenSize) {
  auto c = small_config();
  c.head_width = 10;
  c.softmax_scale = 1.0 / 10;         // power 1
  c.bias_dense = c.bias_mlp = false;  // only_attn_qkv
  c.rotary.kind = RotaryKind::kDefault;
  expect_like_autograd(c);
}

TEST(GptEmbedding, IsLikeAutogradWithRepeatedTokens) {
  at::manual_seed(3);
  for (bool positions : {false, true}) {
    auto c = small_config();
    c.absolute_positions = positions;
    Embedding layer(c);
    const Named weights = random_weights(layer);
    const auto tokens = at::randint(0, 7, {kBatch, kSequence}, at::kLong);  // 7 ids for 140 tokens
    const auto places = at::arange(kSequence, at::kLong).expand({kBatch, kSequence}).contiguous();
    const auto dy = at::randn({kBatch, kSequence, c.hidden}, at::kFloat);
    std::vector<at::Tensor> inputs{tokens};
    if (positions) inputs.push_back(places);
    const auto actual = run(layer, weights, inputs, {dy});
    const Named w = leaves(weights);
    auto y = w.at("layers.0.word_embeddings_weight").index({tokens});
    if (positions) y = y + w.at("layers.0.position_embeddings_weight").index({places});
    (y * dy.to(at::kDouble)).sum().backward();
    EXPECT_LT(distance(actual.outputs[0], y), kTolerance);
    for (const auto& [name, gradient] : actual.gradients) {
      EXPECT_LT(distance(gradient, w.at(name).grad()), kTolerance) << name;
    }
  }
}

struct HeadCase {
  GptConfig config;
  at::Tensor x = at::randn({kBatch, kSequence, config.hidden}, at::kFloat) * 2;
  at::Tensor labels = at::randint(0, config.vocabulary, {kBatch, kSequence}, at::kLong);
  at::Tensor d_loss = at::full({}, 0.37, at::kFloat);
  Head head{config, "layers.3", 1, "hidden", "layers.3.output_weights"};
  Named weights = random_weights(head);

  explicit HeadCase(const GptConfig& c) : config(c) {
    labels.view({-1}).narrow(0, 3, 9).fill_(-100);
  }
  std::string weight_name() const {
    return config.tied ? "layers.0.word_embeddings_weight" : "layers.3.output_weights";
  }
  RunResult run(const RunOptions& options = {}) {
    return testing::run(head, weights, {x, labels}, {d_loss}, options);
  }
};

TEST(GptHead, IsLikeAutogradTiedAndUntiedWithMissingLabels) {
  for (bool tied : {true, false}) {
    for (bool logits_wanted : {false, true}) {
      at::manual_seed(11);
      auto config = small_config();
      config.tied = tied;
      config.logits_scale = 0.5;
      HeadCase c(config);
      const auto actual = c.run({.logits = logits_wanted});
      const Named w = leaves(c.weights);
      const auto x = c.x.to(at::kDouble).requires_grad_(true);
      const auto logits =
          plain_norm(config, w, "layers.3.final_norm", x).matmul(w.at(c.weight_name()).t()) *
          config.logits_scale;
      const auto loss = at::cross_entropy_loss(logits.flatten(0, 1), c.labels.flatten(), {},
                                               at::Reduction::Sum, -100);
      (loss * c.d_loss.to(at::kDouble)).backward();
      EXPECT_LT(distance(actual.outputs[0], loss), kTolerance);
      if (logits_wanted) {
        EXPECT_LT(distance(actual.outputs[1], logits), kTolerance);
      }
      EXPECT_LT(distance(actual.d_input, x.grad()), kTolerance);
      for (const auto& [name, gradient] : actual.gradients) {
        EXPECT_LT(distance(gradient, w.at(name).grad()), kTolerance) << name;
      }
    }
  }
}

TEST(GptHead, GivesAnExactLossForALargeVocabularyAndLargeLogits) {
  at::manual_seed(5);
  auto config = small_config();
  config.vocabulary = 50000;
  config.logits_scale = 20;
  HeadCase c(config);
  const auto actual = run_forward(c.head, c.weights, {c.x, c.labels}, true);
  const auto loss = at::cross_entropy_loss(actual[1].to(at::kDouble).flatten(0, 1),
                                           c.labels.flatten(), {}, at::Reduction::Sum, -100);
  EXPECT_LT(distance(actual[0], loss), 1e-6);
}

// ---------------------------------------------------------------- what the host relies on

TEST(GptLayers, AddToGradientsUnlessToldToOverwrite) {
  at::manual_seed(1);
  BlockCase block(small_config());
  HeadCase head(small_config());
  const auto compare = [](const RunResult& written, const RunResult& added) {
    for (const auto& [name, gradient] : written.gradients) {
      EXPECT_LT(distance(added.gradients.at(name), gradient + 0.5), kTolerance) << name;
    }
  };
  compare(block.run(), block.run({.overwrite = false}));
  compare(head.run(), head.run({.overwrite = false}));
  auto config = small_config();
  config.absolute_positions = true;
  Embedding embedding(config);
  const Named weights = random_weights(embedding);
  const auto tokens = at::zeros({1, 3}, at::kLong), places = at::arange(3, at::kLong).view({1, 3});
  const auto dy = at::ones({1, 3, config.hidden}, at::kFloat);
  compare(run(embedding, weights, {tokens, places}, {dy}),
          run(embedding, weights, {tokens, places}, {dy}, {.overwrite = false}));
}

// Freezing may leave work out but changes nothing that is left: checked to the bit, for every
// single parameter and for the parts.
TEST(GptLayers, GiveTheSameGradientsWhateverElseIsFrozen) {
  auto config = small_config();
  config.rotary.kind = RotaryKind::kDefault;
  at::manual_seed(2);
  BlockCase c(config);
  const auto all = c.run();
  std::vector<std::string> names;
  for (const auto& [name, gradient] : all.gradients) names.push_back(name);

  std::vector<std::set<std::string>> cases;
  for (const auto& name : names) cases.push_back({name});
  for (const auto& kept : names) {  // everything but one
    std::set<std::string> frozen(names.begin(), names.end());
    frozen.erase(kept);
    cases.push_back(frozen);
  }
  for (const char* part : {".mlp.", ".self_attn.", ".norm_", ".bias", ".weight"}) {
    std::set<std::string> frozen;
    for (const auto& name : names) {
      if (name.find(part) != std::string::npos) frozen.insert(name);
    }
    cases.push_back(frozen);
  }
  cases.push_back({names.begin(), names.end()});
  for (const auto& frozen : cases) {
    for (bool input_gradient : {true, false}) {
      const auto some = c.run({.frozen = frozen, .input_gradient = input_gradient});
      EXPECT_EQ(some.gradients.size(), names.size() - frozen.size());
      for (const auto& [name, gradient] : some.gradients) {
        EXPECT_TRUE(gradient.equal(all.gradients.at(name)))
            << name << " with " << *frozen.begin() << " frozen";
      }
      if (input_gradient) {
        EXPECT_TRUE(some.d_input.equal(all.d_input)) << *frozen.begin();
      }
    }
  }
}

TEST(GptLayers, NormsOfQueriesAndKeysAreFrozenAlone) {
  at::manual_seed(2);
  auto config = small_config();
  config.query_key_norm = true;
  BlockCase c(config);
  const auto all = c.run();
  std::set<std::string> others;
  for (const auto& [name, gradient] : all.gradients) others.insert(name);
  for (const char* norm : {"query_norm", "key_norm"}) {
    const std::string name = "layers.1.self_attn." + std::string(norm) + ".weight";
    ASSERT_TRUE(others.contains(name));
    std::set<std::string> frozen = others;
    frozen.erase(name);
    for (bool input_gradient : {true, false}) {
      const auto alone = c.run({.frozen = frozen, .input_gradient = input_gradient});
      EXPECT_TRUE(alone.gradients.at(name).equal(all.gradients.at(name)));
      const auto without = c.run({.frozen = {name}, .input_gradient = input_gradient});
      EXPECT_FALSE(without.gradients.contains(name));
      for (const auto& [other, gradient] : without.gradients)
        EXPECT_TRUE(gradient.equal(all.gradients.at(other))) << other;
    }
  }
}

TEST(GptLayers, HeadGradientsDoNotDependOnWhatElseIsFrozen) {
  at::manual_seed(2);
  HeadCase c(small_config());
  const auto all = c.run();
  for (const auto& [frozen, unused] : all.gradients) {
    for (bool input_gradient : {true, false}) {
      const auto some = c.run({.frozen = {frozen}, .input_gradient = input_gradient});
      for (const auto& [name, gradient] : some.gradients)
        EXPECT_TRUE(gradient.equal(all.gradients.at(name))) << name;
      if (input_gradient) {
        EXPECT_TRUE(some.d_input.equal(all.d_input));
      }
    }
  }
}

TEST(GptLayers, WriteZerosWhenThereIsNoOutputGradient) {
  at::manual_seed(2);
  BlockCase block(small_config());
  HeadCase head(small_config());
  for (const auto& result :
       {block.run({.output_gradient = false}), head.run({.output_gradient = false})}) {
    EXPECT_EQ(result.d_input.abs().max().item<float>(), 0);
    for (const auto& [name, gradient] : result.gradients)
      EXPECT_EQ(gradient.abs().max().item<float>(), 0) << name;
  }
  for (const auto& result : {block.run({.overwrite = false, .output_gradient = false}),
                             head.run({.overwrite = false, .output_gradient = false})}) {
    for (const auto& [name, gradient] : result.gradients)
      EXPECT_TRUE(gradient.eq(0.5).all().item<bool>()) << name;
  }
}

// Two documents in one row, with positions that begin again, against each in a call of its own: what
// the reference asks of packing, for outputs and for every gradient.
TEST(GptBlock, TreatsPackedDocumentsLikeDocumentsAlone) {
  for (auto [window, normalized] : {std::pair{0, true}, {5, false}}) {
    at::manual_seed(6);
    auto config = small_config();
    config.rotary.kind = RotaryKind::kDefault;
    config.window = window;
    config.query_key_norm = normalized;
    const std::vector<int64_t> lengths{33, 37, 1, 69};  // two a sample
    BlockCase packed(config);
    packed.ranges = at::tensor({0, 33, 70, 71, 140}, at::kInt);
    std::vector<at::Tensor> positions;
    for (int64_t length : lengths) positions.push_back(at::arange(length, at::kLong));
    packed.positions = at::cat(positions).view({kBatch, kSequence});
    const auto together = packed.run();

    Named sums;
    int64_t begin = 0;
    for (int64_t length : lengths) {
      const auto part = [&](const at::Tensor& all) {
        return all.flatten(0, 1).narrow(0, begin, length).unsqueeze(0).contiguous();
      };
      const std::vector<at::Tensor> inputs{part(packed.x), at::tensor({0, int(length)}, at::kInt),
                                           at::arange(length, at::kLong).unsqueeze(0)};
      const auto alone = testing::run(packed.block, packed.weights, inputs, {part(packed.dy)}, {});
      EXPECT_LT(distance(part(together.outputs[0]), alone.outputs[0]), kTolerance);
      EXPECT_LT(distance(part(together.d_input), alone.d_input), kTolerance);
      for (const auto& [name, gradient] : alone.gradients)
        sums[name] =
            sums[name].defined() ? sums[name] + gradient.to(at::kDouble) : gradient.to(at::kDouble);
      begin += length;
    }
    for (const auto& [name, gradient] : together.gradients)
      EXPECT_LT(distance(gradient, sums.at(name)), 2 * kTolerance) << name;
  }
}

TEST(GptBlock, DropsAttentionByTheCallsSeedAndNotInEvaluation) {
  at::manual_seed(6);
  auto config = small_config();
  BlockCase plain(config);
  config.attention_dropout = 0.4;
  BlockCase dropping(config);
  dropping.x = plain.x;
  dropping.dy = plain.dy;
  dropping.weights = plain.weights;
  const auto equal = [](const RunResult& a, const RunResult& b) {
    bool same = a.outputs[0].equal(b.outputs[0]) && a.d_input.equal(b.d_input);
    for (const auto& [name, gradient] : a.gradients) same &= gradient.equal(b.gradients.at(name));
    return same;
  };
  const auto first = dropping.run({.seed = 1});
  EXPECT_TRUE(equal(first, dropping.run({.seed = 1})));
  EXPECT_FALSE(first.outputs[0].equal(dropping.run({.seed = 2}).outputs[0]));
  EXPECT_FALSE(first.outputs[0].equal(plain.run({.seed = 1}).outputs[0]));
  EXPECT_TRUE(equal(plain.run(), dropping.run({.evaluation = true, .seed = 1})));
}

TEST(GptLayers, RepeatToTheBitAndRecomputeWhatTheyKept) {
  auto config = small_config();
  config.rotary.kind = RotaryKind::kDefault;
  at::manual_seed(4);
  BlockCase block(config);
  HeadCase head(config);
  const auto compare = [](const RunResult& a, const RunResult& b,
                          const std::vector<at::Tensor>& plain) {
    EXPECT_TRUE(a.outputs[0].equal(b.outputs[0]));
    EXPECT_TRUE(a.outputs[0].equal(plain[0]));  // without SAVE
    EXPECT_TRUE(a.d_input.equal(b.d_input));
    for (const auto& [name, gradient] : a.gradients)
      EXPECT_TRUE(gradient.equal(b.gradients.at(name))) << name;
  };
  const auto first = block.run(), second = block.run();
  compare(first, second, run_forward(block.block, block.weights, block.inputs()));
  const auto head_first = head.run(), head_second = head.run();
  compare(head_first, head_second, run_forward(head.head, head.weights, {head.x, head.labels}));
}

TEST(GptLayers, LeaveTheirInputsAlone) {
  at::manual_seed(4);
  BlockCase block(small_config());
  HeadCase head(small_config());
  const auto x = block.x.clone(), dy = block.dy.clone(), head_x = head.x.clone(),
             labels = head.labels.clone();
  block.run();
  head.run();
  EXPECT_TRUE(block.x.equal(x) && block.dy.equal(dy) && head.x.equal(head_x) &&
              head.labels.equal(labels));
}

// ---------------------------------------------------------------- errors

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const sdk::Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(GptErrors, NameAnIdOutsideTheVocabularyAndWhereItIs) {
  Embedding layer(small_config());
  const Named weights = random_weights(layer);
  auto tokens = at::zeros({2, 5}, at::kLong);
  tokens[1][3] = 37;
  EXPECT_EQ(error_of([&] { run_forward(layer, weights, {tokens}); }),
            "tokens: expected values from 0 to below 37 (vocab_size), found 37 at sample 1, "
            "position 3 of the micro-batch; "
            "raise vocab_size or check the dataset");
  tokens[1][3] = -1;
  EXPECT_NE(error_of([&] { run_forward(layer, weights, {tokens}); }).find("found -1"),
            std::string::npos);
}

TEST(GptErrors, NameALabelAndAPositionOutOfRange) {
  HeadCase head(small_config());
  head.labels[0][1] = 1000;
  EXPECT_NE(error_of([&] {
              head.run();
            }).find("labels: expected values from 0 to below 37 (vocab_size), found 1000"),
            std::string::npos);
  auto config = small_config();
  config.absolute_positions = true;
  config.positions = 4;
  Embedding layer(config);
  const auto positions = at::arange(5, at::kLong).view({1, 5});
  EXPECT_NE(
      error_of([&] {
        run_forward(layer, random_weights(layer), {at::zeros({1, 5}, at::kLong), positions});
      }).find("positions: expected values from 0 to below 4 (max_position_embeddings), found 4"),
      std::string::npos);
  config.rotary.kind = RotaryKind::kDefault;
  BlockCase block(config);
  block.positions[0][0] = int64_t{1} << 40;  // would be a table of terabytes
  EXPECT_NE(error_of([&] { block.run(); }).find("positions: expected values from 0 to below 70"),
            std::string::npos);
}

TEST(GptErrors, NameAWeightOfAnotherTypeOrShape) {
  Embedding layer(small_config());
  Named weights = random_weights(layer);
  const auto tokens = at::zeros({1, 2}, at::kLong);
  auto& table = weights.begin()->second;
  const auto whole = table;
  table = whole.narrow(0, 0, 12).clone();
  EXPECT_EQ(error_of([&] { run_forward(layer, weights, {tokens}); }),
            "layers.0.word_embeddings_weight: expected the whole weight [37, 24], found [12, 24]; "
            "gpt divides what it declares over the 1 ranks of the group tensor, and nothing else");
  table = whole.to(at::kDouble);
  EXPECT_EQ(
      error_of([&] { run_forward(layer, weights, {tokens}); }),
      "layers.0.word_embeddings_weight: expected a float32, bfloat16 or float16 weight, found "
      "float64; set model.distributed.training_dtype to one of them");
}

}  // namespace
}  // namespace fastllm::gpt
