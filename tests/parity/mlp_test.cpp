// The MLP on its own: against autograd with dropout, and what each level of recomputation keeps.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/mlp.hpp"
#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using namespace testing;

constexpr int64_t kTokens = 70;

constexpr Activation kActivations[]{Activation::kGelu, Activation::kSilu, Activation::kRelu,
                                    Activation::kSquaredRelu};

GptConfig mlp_config(Activation activation, bool gated,
                     MlpRecompute recompute = MlpRecompute::kNone) {
  GptConfig c = small_config();
  c.gated = gated;
  c.activation = activation;
  c.mlp_recompute = recompute;
  return c;
}

at::Tensor plain_activation(Activation kind, const at::Tensor& x) {
  if (kind == Activation::kGelu) return at::gelu(x, "tanh");
  if (kind == Activation::kSilu) return at::silu(x);
  return kind == Activation::kRelu ? x.relu() : x.relu().square();
}

// An MLP with its weights and gradients, as a block would hold it.
struct Rig {
  Parameters parameters;
  Mlp mlp;
  std::vector<at::Tensor> weights, gradients;
  std::vector<std::string> names{"layer_1.weight", "layer_1.bias", "layer_2.weight",
                                 "layer_2.bias"};
  at::Tensor x, residual, dy;

  explicit Rig(const GptConfig& c, const std::set<std::string>& frozen = {},
               int64_t tokens = kTokens)
      : mlp(parameters, c, "mlp"),
        x(at::randn({tokens, c.hidden}, at::kFloat)),
        residual(at::randn_like(x)),
        dy(at::randn_like(x)) {
    const int64_t wide = c.gated ? 2 * c.ffn : c.ffn;
    const std::vector<std::vector<int64_t>> shapes{
        {wide, c.hidden}, {wide}, {c.ffn, c.hidden}, {c.hidden}};
    std::vector<Lent> lent;
    std::vector<const DLTensor*> weight_pointers;
    std::vector<DLTensor*> gradient_pointers;
    lent.reserve(8);
    for (size_t i = 0; i < shapes.size(); ++i) {
      weights.push_back(at::randn(shapes[i], at::kFloat) * 0.2);
      gradients.push_back(at::zeros(shapes[i], at::kFloat));
      weight_pointers.push_back(lent.emplace_back(weights[i]).get());
      gradient_pointers.push_back(
          frozen.contains(names[i]) ? nullptr : lent.emplace_back(gradients[i]).get());
    }
    parameters.bind(weight_pointers.data(), gradient_pointers.data());
  }

  struct Result {
    at::Tensor y, dx;
    MlpSaved saved;  // before backward used it up
  };
  Result run(const Dropout& dropout = {}) {
    const sdk::ComputeGuard guard;
    for (auto& gradient : gradients) gradient.zero_();
    const fastllm_call raw{};
    const sdk::Call call(&raw);
    const RankGroup alone("tensor");
    const TensorRegion region(alone, call);
    Result r{at::empty_like(x), at::empty_like(x), {}};
    MlpSaved saved;
    mlp.forward(region, x, residual, dropout, r.y, &saved);
    r.saved = saved;
    if (saved.pre.defined()) r.saved.pre = saved.pre.clone();
    if (mlp.needs_input() && !saved.input.defined()) saved.input = x;
    mlp.backward(region, Gradients(parameters, call), saved, dy, r.dx);
    return r;
  }
};

void expect_like_autograd(Rig& rig, const GptConfig& c, const Dropout& dropout) {
  const auto actual = rig.run(dropout);
  at::Tensor mask = at::empty_like(rig.x);
  for (int64_t i = 0; i < mask.numel(); ++i)
    mask.data_ptr<float>()[i] = dropout.factor(uint64_t(i));
  std::vector<at::Tensor> w;
  for (const auto& tensor : rig.weights) w.push_back(tensor.to(at::kDouble).requires_grad_(true));
  const auto x = rig.x.to(at::kDouble).requires_grad_(true);
  const auto pre = x.matmul(w[0].t()) + w[1];
  auto out = plain_activation(c.activation, pre.narrow(1, 0, c.ffn));
  if (c.gated) out = out * pre.narrow(1, c.ffn, c.ffn);
  const auto branch = (out.matmul(w[2]) + w[3]) * mask.to(at::kDouble);
  ((rig.residual.to(at::kDouble) + branch) * rig.dy.to(at::kDouble)).sum().backward();
  EXPECT_LT(distance(actual.y, rig.residual.to(at::kDouble) + branch), 2e-6);
  EXPECT_LT(distance(actual.dx, x.grad()), 2e-6);
  for (size_t i = 0; i < w.size(); ++i)
    EXPECT_LT(distance(rig.gradients[i], w[i].grad()), 2e-6) << rig.names[i];
}

TEST(GptMlp, IsLikeAutogradWithDropout) {
  for (const Activation activation : kActivations) {
    for (bool gated : {false, true}) {
      SCOPED_TRACE(::testing::Message() << int(activation) << gated);
      at::manual_seed(3);
      const GptConfig c = mlp_config(activation, gated);
      Rig rig(c);
      expect_like_autograd(rig, c, make_dropout(0.3, 99));
    }
  }
}

// Wide enough for products in blocks and activations in whole vectors.
TEST(GptMlp, IsLikeAutogradInAnOrdinarySize) {
  for (const Activation activation : kActivations) {
    for (bool gated : {false, true}) {
      SCOPED_TRACE(::testing::Message() << int(activation) << gated);
      at::manual_seed(6);
      GptConfig c = mlp_config(activation, gated);
      c.hidden = 128;
      c.ffn = 256;
      Rig rig(c, {}, 64);
      expect_like_autograd(rig, c, {});
    }
  }
}

// What is kept is a matter of the level; no bit of what comes out is.
void expect_same_from_every_level(Activation activation, bool gated,
                                  const std::set<std::string>& frozen) {
  at::manual_seed(4);
  Rig none(mlp_config(activation, gated), frozen);
  const auto expected = none.run(make_dropout(0.2, 5));
  const bool input = !frozen.contains("layer_1.weight");
  EXPECT_EQ(expected.saved.input.defined(), input);
  EXPECT_TRUE(expected.saved.pre.defined());
  for (auto level :
       {MlpRecompute::kActivation, MlpRecompute::kActivationAndInput, MlpRecompute::kFull}) {
    SCOPED_TRACE(int(level));
    at::manual_seed(4);
    Rig rig(mlp_config(activation, gated, level), frozen);
    const auto found = rig.run(make_dropout(0.2, 5));
    EXPECT_EQ(found.saved.input.defined(), input && level == MlpRecompute::kActivation);
    EXPECT_EQ(found.saved.pre.defined(), level != MlpRecompute::kFull);
    EXPECT_TRUE(found.y.equal(expected.y));
    EXPECT_TRUE(found.dx.equal(expected.dx));
    for (size_t i = 0; i < rig.gradients.size(); ++i)
      EXPECT_TRUE(rig.gradients[i].equal(none.gradients[i])) << rig.names[i];
  }
}

TEST(GptMlp, KeepsLessTheMoreItMakesAgainAndChangesNoBit) {
  for (const Activation activation : kActivations) {
    for (bool gated : {false, true}) {
      for (const std::set<std::string>& frozen :
           {std::set<std::string>{}, {"layer_1.weight", "layer_1.bias"}, {"layer_2.weight"}}) {
        SCOPED_TRACE(::testing::Message() << int(activation) << gated << frozen.size());
        expect_same_from_every_level(activation, gated, frozen);
      }
    }
  }
}

}  // namespace
}  // namespace fastllm::gpt
