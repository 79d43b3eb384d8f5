// The mixture of experts on its own: the goldens of the reference's routing (fixtures/moe), a plain
// mixture under autograd in a size of its own, what is kept, and what is frozen.
#include "layers/experts.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using namespace testing;

// A mixture with its weights and gradients, as a block would hold it.
struct Rig {
  GptConfig config;
  Parameters parameters;
  MixtureOfExperts experts;
  std::vector<std::string> names{"layer_1.weight", "layer_2.weight", "router.weight"};
  std::vector<at::Tensor> weights, gradients;
  at::Tensor x, residual, dy, noise;
  RouterLosses d_losses{1, 1};
  bool training = true;

  explicit Rig(const GptConfig& c, int64_t tokens = 50, const std::set<std::string>& frozen = {})
      : config(c),
        experts(parameters, config, "mlp"),
        x(at::randn({tokens, c.hidden}, at::kFloat)),
        residual(at::randn_like(x)),
        dy(at::randn_like(x)) {
    const int64_t wide = c.gated ? 2 * c.ffn : c.ffn;
    for (const auto& shape : std::vector<std::vector<int64_t>>{{c.experts * wide, c.hidden},
                                                               {c.experts * c.ffn, c.hidden},
                                                               {c.routed_experts(), c.hidden}}) {
      weights.push_back(at::randn(shape, at::kFloat) * 0.2);
      gradients.push_back(at::empty(shape, at::kFloat));
    }
    bind(frozen);
  }
  void bind(const std::set<std::string>& frozen) {
    std::vector<Lent> lent;
    std::vector<const DLTensor*> weight_pointers;
    std::vector<DLTensor*> gradient_pointers;
    lent.reserve(6);
    for (size_t i = 0; i < weights.size(); ++i) {
      weight_pointers.push_back(lent.emplace_back(weights[i]).get());
      gradient_pointers.push_back(
          frozen.contains(names[i]) ? nullptr : lent.emplace_back(gradients[i]).get());
    }
    parameters.bind(weight_pointers.data(), gradient_pointers.data());
  }

  struct Result {
    at::Tensor y, dx;
    RouterLosses losses;
    ExpertsSaved saved;  // before backward used it up
  };
  // Gradients begin as NaN and are overwritten, or as 0.5 and are added to.
  Result run(const Dropout& dropout = {}, bool overwrite = true, bool input_gradient = true) {
    const sdk::ComputeGuard guard;
    for (auto& gradient : gradients) gradient.fill_(overwrite ? std::nan("") : 0.5);
    std::vector<uint8_t> flags(weights.size(), overwrite);
    fastllm_call raw{};
    raw.overwrite = flags.data();
    const sdk::Call call(&raw);
    const RankGroup alone("tensor");
    const TensorRegion region(alone, call);
    Result r{at::empty_like(x), input_gradient ? at::empty_like(x) : at::Tensor(), {}, {}};
    ExpertsSaved saved;
    experts.forward(region, x, residual, dropout, noise, training, r.y, r.losses, &saved);
    r.saved = saved;
    if (experts.needs_input() && !saved.router.input.defined()) saved.router.input = x;
    experts.backward(region, Gradients(parameters, call), saved, dy, d_losses, r.dx);
    return r;
  }
};

// ------------------------------------------------------------------ goldens

at::Tensor matrix(const nlohmann::json& rows) {
  std::vector<double> values;
  for (const auto& row : rows)
    for (const auto& value : row) values.push_back(value);
  return at::tensor(values, at::kDouble).reshape({int64_t(rows.size()), -1});
}

class GptExpertsGolden : public ::testing::TestWithParam<std::string> {
 protected:
  static const nlohmann::json& all() {
    static const nlohmann::json expected = nlohmann::json::parse(
        std::ifstream(FASTLLM_SOURCE_DIR "/tests/fixtures/moe/expected.json"));
    return expected;
  }
};

TEST_P(GptExpertsGolden, IsMet) {
  const auto& cases = all()["cases"];
  const auto found =
      std::ranges::find_if(cases, [](const auto& c) { return c["name"] == GetParam(); });
  ASSERT_NE(found, cases.end());
  const nlohmann::json &golden = *found, &settings = golden["settings"];
  GptConfig c = small_config();
  c.experts = settings["num_experts"];
  c.shared_experts = settings["num_shared_experts"];
  c.experts_per_token = settings["num_experts_per_token"];
  c.gated = settings["gated"];
  c.activation = settings["activation"] == "gelu" ? Activation::kGelu : Activation::kSilu;
  c.routing =
      settings["expert_routing_type"] == "sinkhorn" ? RoutingKind::kSinkhorn : RoutingKind::kTopK;
  c.router_balance_coefficient = settings["expert_auxiliary_loss_coefficient"];
  c.router_z_coefficient = settings["expert_z_loss_coefficient"];
  const at::Tensor layer_2 = matrix(golden["layer_2_weight"]);
  c.hidden = layer_2.size(1);
  c.ffn = layer_2.size(0) / c.experts;

  Rig rig(c, int64_t(golden["input"].size()));
  rig.weights = {matrix(golden["layer_1_weight"]).to(at::kFloat), layer_2.to(at::kFloat),
                 matrix(golden["router_weight"]).to(at::kFloat)};
  rig.bind({});
  rig.x = matrix(golden["input"]).to(at::kFloat);
  rig.residual.zero_();
  rig.dy = matrix(golden["grad_output"]).to(at::kFloat);
  if (!golden["jitter_factors"].is_null())
    rig.noise = matrix(golden["jitter_factors"]).to(at::kFloat);
  rig.training = settings["training"];
  rig.d_losses = {settings["grad_scale"], settings["grad_scale"]};
  const auto actual = rig.run();

  const RouterSaved& router = actual.saved.router;
  EXPECT_LT(distance(router.logits, matrix(golden["logits"])), 1e-6);
  EXPECT_LT(distance(router.noisy, matrix(golden["routed_logits"])), 1e-6);
  // The fixture lists shared experts first, with a score of 1.
  const int64_t shared = c.shared_experts, chosen = c.experts_per_token;
  const at::Tensor top = matrix(golden["top_experts"]), scores = matrix(golden["scores"]);
  std::vector<int32_t> index;
  for (int64_t t = 0; t < top.size(0); ++t)
    for (int64_t j = 0; j < chosen; ++j)
      index.push_back(int32_t(top[t][shared + j].item<double>()));
  EXPECT_EQ(router.routes.index, index);
  EXPECT_LT(distance(router.routes.scores, scores.narrow(1, shared, chosen)), 1e-6);
  EXPECT_LT(distance(actual.y, matrix(golden["output"])), 1e-6);
  const auto& losses = golden["losses"];
  EXPECT_NEAR(actual.losses.z, losses["router_z_loss"].get<double>(), 1e-5);
  EXPECT_EQ(losses.contains("load_balancing_loss") && !losses["load_balancing_loss"].is_null(),
            rig.experts.router().has_balance_loss());
  if (rig.experts.router().has_balance_loss()) {
    EXPECT_NEAR(actual.losses.balance, losses["load_balancing_loss"].get<double>(), 1e-6);
  }
  EXPECT_EQ(golden.contains("gradients"), rig.training);
  if (!rig.training) return;
  const auto& gradients = golden["gradients"];
  EXPECT_LT(distance(actual.dx, matrix(gradients["input"])), 1e-5);
  EXPECT_LT(distance(rig.gradients[0], matrix(gradients["layer_1_weight"])), 1e-5);
  EXPECT_LT(distance(rig.gradients[1], matrix(gradients["layer_2_weight"])), 1e-5);
  EXPECT_LT(distance(rig.gradients[2], matrix(gradients["router_weight"])), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, GptExpertsGolden,
                         ::testing::Values("top2", "top2_scaled", "top2_jitter", "top2_not_gated",
                                           "shared1_top2", "top1", "sinkhorn_top2_training",
                                           "sinkhorn_top1_training", "sinkhorn_top2_evaluation"),
                         [](const auto& golden) { return golden.param; });

// ------------------------------------------------------------------ a plain mixture

GptConfig mixture(int64_t experts, int64_t shared, int64_t chosen, bool gated = true,
                  RoutingKind routing = RoutingKind::kTopK) {
  GptConfig c = small_config();
  c.experts = experts;
  c.shared_experts = shared;
  c.experts_per_token = chosen;
  c.gated = gated;
  c.activation = gated ? Activation::kSilu : Activation::kGelu;
  c.routing = routing;
  c.router_balance_coefficient = 0.3;
  c.router_z_coefficient = 0.2;
  return c;
}

// Every expert sees every token; scores are 0 where a token was not sent. The choice is the one that
// was made: choices are judged by the goldens.
struct Plain {
  at::Tensor y, objective;
  std::vector<at::Tensor> w;
  at::Tensor x;

  Plain(const Rig& rig, const Rig::Result& actual, const at::Tensor& mask) {
    const GptConfig& c = rig.config;
    for (const auto& tensor : rig.weights) w.push_back(tensor.to(at::kDouble).requires_grad_(true));
    x = rig.x.to(at::kDouble).requires_grad_(true);
    const int64_t tokens = x.size(0), routed = c.routed_experts();
    at::Tensor logits = x.matmul(w[2].t());
    const at::Tensor log_sums = logits.logsumexp(1);
    if (rig.noise.defined()) logits = logits * rig.noise.to(at::kDouble);
    at::Tensor chosen = at::zeros({tokens, routed}, at::kDouble);
    const auto& index = actual.saved.router.routes.index;
    for (size_t j = 0; j < index.size(); ++j)
      chosen[int64_t(j) / c.experts_per_token][index[j]] = 1;
    at::Tensor scores;
    const at::Tensor p = logits.softmax(1);
    if (c.routing == RoutingKind::kTopK)
      scores = logits.masked_fill(chosen == 0, -INFINITY).softmax(1);
    else
      scores = (c.experts_per_token == 1 ? logits.sigmoid() : p) * chosen;
    scores = at::cat({scores, at::ones({tokens, c.shared_experts}, at::kDouble)}, 1);
    at::Tensor branch = at::zeros_like(x);
    const int64_t wide = c.gated ? 2 * c.ffn : c.ffn;
    for (int64_t e = 0; e < c.experts; ++e) {
      const auto pre = x.matmul(w[0].narrow(0, e * wide, wide).t());
      auto out = c.gated ? at::silu(pre.narrow(1, 0, c.ffn)) * pre.narrow(1, c.ffn, c.ffn)
                         : at::gelu(pre, "tanh");
      branch = branch + scores.narrow(1, e, 1) * out.matmul(w[1].narrow(0, e * c.ffn, c.ffn));
    }
    y = rig.residual.to(at::kDouble) + branch * mask;
    objective = (y * rig.dy.to(at::kDouble)).sum() +
                rig.d_losses.z * c.router_z_coefficient * log_sums.square().mean();
    if (c.routing == RoutingKind::kTopK)
      objective = objective + rig.d_losses.balance * double(routed) * c.router_balance_coefficient *
                                  (p.mean(0) * chosen.mean(0)).sum();
    objective.backward();
  }
};

void expect_like_autograd(Rig& rig, const Dropout& dropout = {}) {
  at::Tensor mask = at::empty_like(rig.x);
  for (int64_t i = 0; i < mask.numel(); ++i)
    mask.data_ptr<float>()[i] = dropout.factor(uint64_t(i));
  for (const bool overwrite : {true, false}) {
    const auto actual = rig.run(dropout, overwrite);
    const Plain plain(rig, actual, mask.to(at::kDouble));
    EXPECT_LT(distance(actual.y, plain.y), 2e-6);
    EXPECT_LT(distance(actual.dx, plain.x.grad()), 4e-6);
    for (size_t i = 0; i < plain.w.size(); ++i)
      EXPECT_LT(distance(rig.gradients[i], plain.w[i].grad() + (overwrite ? 0 : 0.5)), 4e-6)
          << rig.names[i];
  }
}

TEST(GptExperts, AreLikeAutograd) {
  for (const RoutingKind routing : {RoutingKind::kTopK, RoutingKind::kSinkhorn}) {
    for (const bool gated : {true, false}) {
      for (const auto& [shared, chosen] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {1, 3}, {2, 1}}) {
        SCOPED_TRACE(::testing::Message() << int(routing) << gated << shared << chosen);
        at::manual_seed(21);
        Rig rig(mixture(6, shared, chosen, gated, routing));
        expect_like_autograd(rig);
        expect_like_autograd(rig, make_dropout(0.3, 99));
        rig.noise = at::rand({50, 6 - shared}, at::kFloat) * 0.4 + 0.8;
        expect_like_autograd(rig);
      }
    }
  }
}

TEST(GptExperts, AreLikeAutogradInAnOrdinarySizeWithIdleExperts) {
  at::manual_seed(22);
  GptConfig c = mixture(16, 0, 2);
  c.hidden = 128;
  c.ffn = 256;
  Rig rig(c, 300);
  rig.weights[2].narrow(0, 0, 4).fill_(0);
  rig.x = rig.x.abs();
  rig.weights[2].narrow(0, 4, 1).fill_(-5);  // nobody's choice
  expect_like_autograd(rig);
  const auto idle = rig.run().saved.order;
  EXPECT_EQ(idle.ends[4], idle.ends[5]);
  EXPECT_EQ(rig.gradients[0].narrow(0, 4 * 512, 512).abs().max().item<float>(), 0);
}

TEST(GptExperts, KeepLessTheMoreTheyMakeAgainAndChangeNoBit) {
  for (const std::set<std::string>& frozen :
       {std::set<std::string>{}, {"layer_1.weight", "router.weight"}, {"layer_2.weight"}}) {
    const auto make = [&](MlpRecompute level) {
      at::manual_seed(23);
      GptConfig c = mixture(5, 1, 2);
      c.mlp_recompute = level;
      return std::make_unique<Rig>(c, 50, frozen);
    };
    const auto none = make(MlpRecompute::kNone);
    const auto expected = none->run(make_dropout(0.2, 5));
    for (auto level :
         {MlpRecompute::kActivation, MlpRecompute::kActivationAndInput, MlpRecompute::kFull}) {
      SCOPED_TRACE(::testing::Message() << int(level) << frozen.size());
      const auto rig = make(level);
      const auto found = rig->run(make_dropout(0.2, 5));
      EXPECT_EQ(found.saved.router.input.defined(),
                level == MlpRecompute::kActivation && rig->experts.needs_input());
      EXPECT_EQ(found.saved.pre.defined(), level != MlpRecompute::kFull);
      EXPECT_TRUE(found.y.equal(expected.y));
      EXPECT_TRUE(found.dx.equal(expected.dx));
      for (size_t i = 0; i < rig->gradients.size(); ++i)
        if (!frozen.contains(rig->names[i])) {
          EXPECT_TRUE(rig->gradients[i].equal(none->gradients[i])) << rig->names[i];
        }
    }
  }
}

// What is frozen changes no bit of what is not, and is not written.
TEST(GptExperts, GiveTheSameGradientsWhateverElseIsFrozen) {
  const auto make = [](const std::set<std::string>& frozen, std::vector<double> scales = {}) {
    at::manual_seed(24);
    GptConfig c = mixture(4, 1, 2);
    if (!scales.empty()) c.mlp_scales = scales;
    return std::make_unique<Rig>(c, 50, frozen);
  };
  const auto whole = make({});
  const auto expected = whole->run();
  for (const std::set<std::string>& frozen :
       {std::set<std::string>{"router.weight"},
        {"layer_1.weight", "layer_2.weight"},
        {"layer_1.weight"},
        {"layer_2.weight"},
        {"layer_1.weight", "layer_2.weight", "router.weight"}}) {
    for (const bool input_gradient : {true, false}) {
      const auto rig = make(frozen);
      const auto found = rig->run({}, true, input_gradient);
      if (input_gradient) {
        EXPECT_TRUE(found.dx.equal(expected.dx));
      }
      for (size_t i = 0; i < rig->gradients.size(); ++i) {
        if (frozen.contains(rig->names[i])) {
          EXPECT_TRUE(rig->gradients[i].isnan().all().item<bool>());
        } else {
          EXPECT_TRUE(rig->gradients[i].equal(whole->gradients[i])) << rig->names[i];
        }
      }
    }
  }
  const auto some = make({}, {0, 1, 0, 1});  // the first and the third
  EXPECT_TRUE(some->run().dx.equal(expected.dx));
  for (size_t i = 0; i < 2; ++i) {
    const auto found = some->gradients[i].chunk(4), all = whole->gradients[i].chunk(4);
    for (const size_t e : {1, 3}) EXPECT_TRUE(found[e].equal(all[e]));
    for (const size_t e : {0, 2}) EXPECT_EQ(found[e].abs().max().item<float>(), 0);
  }
}

TEST(GptExperts, ChooseTheLowerNumberOfEqualLogits) {
  GptConfig c = mixture(4, 0, 2);
  Rig rig(c, 3);
  rig.weights[2].zero_();
  EXPECT_EQ(rig.run().saved.router.routes.index, (std::vector<int32_t>{0, 1, 0, 1, 0, 1}));
}

TEST(GptExperts, DrawNoiseOfTheirOwnForEachTokenAndExpert) {
  GptConfig c = mixture(6, 1, 2);
  c.router_jitter = 0.25;
  fastllm_call raw{};
  raw.seed = 7;
  const at::Tensor noise = router_noise(c, sdk::Call(&raw), {}, 2000);
  EXPECT_EQ(noise.sizes(), (std::vector<int64_t>{2000, 5}));
  EXPECT_GE(noise.min().item<float>(), 0.75f);
  EXPECT_LE(noise.max().item<float>(), 1.25f);
  EXPECT_NEAR(noise.mean().item<double>(), 1, 0.25 / std::sqrt(3.0) / 100 * 4);
  EXPECT_NEAR(noise.std().item<double>(), 0.25 / std::sqrt(3.0), 0.005);
  EXPECT_TRUE(noise.narrow(0, 0, 100).equal(router_noise(c, sdk::Call(&raw), {}, 100)));
  const SamplePart second_half(100, 50, 50);  // of each of two samples
  const at::Tensor part = router_noise(c, sdk::Call(&raw), second_half, 100);
  EXPECT_TRUE(part.narrow(0, 0, 50).equal(noise.narrow(0, 50, 50)));
  EXPECT_TRUE(part.narrow(0, 50, 50).equal(noise.narrow(0, 150, 50)));
  raw.flags = FASTLLM_EVAL;
  EXPECT_FALSE(router_noise(c, sdk::Call(&raw), {}, 10).defined());
}

}  // namespace
}  // namespace fastllm::gpt
