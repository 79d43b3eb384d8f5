// Ways of computing one training step that must give the same: recomputation and the placement of
// buffers change no bit, cutting a batch or the head into pieces nothing but rounding.
#include <gtest/gtest.h>

#include "tests/parity/step_rig.hpp"

namespace fastllm {
namespace {

using namespace testing;

struct Kind {
  const char* name;
  Overrides overrides;
};

// What the blocks of well-known families are made of; multi-token prediction beside them.
const std::vector<Kind> kKinds{
    {"gpt2", {"transformer.head_groups=4"}},
    {"starcoder2", {"transformer.rotary.type=default"}},
    {"llama with a window",
     {"transformer.gated=true", "transformer.add_linear_biases=false",
      "transformer.normalization.type=rms_norm", "transformer.rotary.type=llama3",
      "tie_word_embeddings=false", "transformer.window_size=7"}},
    {"qwen3 with yarn",
     {"transformer.gated=true", "transformer.add_linear_biases=false",
      "transformer.normalization.type=rms_norm", "transformer.rotary.type=yarn",
      "transformer.query_key_norm=true", "transformer.window_size=5"}},
    {"three predictions",
     {"transformer.gated=true", "transformer.add_linear_biases=false",
      "transformer.normalization.type=rms_norm", "transformer.rotary.type=default",
      "prediction_heads=3", "prediction_loss_coefficient=[1,0.5,0.25]", "logit_z_loss=0.01",
      "cross_entropy_splits=2"}},
};

// Samples of several documents each.
const std::vector<int64_t> kDocuments{9, 1, 14};

void expect_close(StepRig& found, const train::StepOutput& output, StepRig& expected,
                  const train::StepOutput& expected_output) {
  ASSERT_EQ(output.losses.size(), expected_output.losses.size());
  for (const auto& [name, loss] : expected_output.losses)
    EXPECT_NEAR(output.losses.at(name), loss, 1e-6 * std::abs(loss)) << name;
  const auto gradients = found.pieces("grads");
  for (const auto& [name, gradient] : expected.pieces("grads"))
    EXPECT_LT(distance(gradients.at(name), gradient), 1e-6) << name;
}

TEST(GptEquivalence, RecomputationChangesNoBit) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const Overrides dropping = with(
        kind.overrides, {"transformer.hidden_dropout=0.2", "transformer.attention_dropout=0.2"});
    const std::vector<data::Batch> batches{batch_of(0, 2, kDocuments), batch_of(2, 1, kDocuments)};
    StepRig plain(dropping);
    const auto expected = plain.train(batches);
    const auto gradients = plain.copies("grads");
    const auto expect_same = [&](const Overrides& overrides, bool recompute) {
      StepRig rig(overrides, {.recompute = recompute});
      EXPECT_EQ(rig.train(batches).losses, expected.losses);
      EXPECT_TRUE(rig.copies("grads") == gradients);
    };
    expect_same(dropping, true);
    for (const char* level : {"activation", "activation_and_input", "full"}) {
      SCOPED_TRACE(level);
      const Overrides also =
          with(dropping, {std::string("transformer.mlp_recompute_level=") + level});
      expect_same(also, false);
    }
    expect_same(with(dropping, {"transformer.mlp_recompute_level=full"}), true);
    const double without = StepRig(kind.overrides).evaluate(batches).losses.begin()->second;
    EXPECT_EQ(plain.evaluate(batches).losses.begin()->second, without) << "dropout is off here";
    for (const char* one : {"transformer.hidden_dropout=0", "transformer.attention_dropout=0"}) {
      StepRig other(with(dropping, {one}));
      EXPECT_NE(other.train(batches).losses, expected.losses) << one << " would change nothing";
    }
  }
}

TEST(GptEquivalence, DropoutDiffersByStepAndMicroBatch) {
  for (const char* dropout :
       {"transformer.hidden_dropout=0.3", "transformer.attention_dropout=0.3"}) {
    SCOPED_TRACE(dropout);
    StepRig rig({dropout});
    const std::vector<data::Batch> one{batch_of(0, 1)};
    const double first = rig.train(one, 1).losses.at("language_model_loss"),
                 second = rig.train(one, 2).losses.at("language_model_loss");
    EXPECT_NE(first, second);
    EXPECT_EQ(first, rig.train(one, 1).losses.at("language_model_loss"));
    const double twice =
        rig.train({batch_of(0, 1), batch_of(0, 1)}, 1).losses.at("language_model_loss");
    EXPECT_NE(first, twice) << "both micro-batches dropped the same";
  }
}

TEST(GptEquivalence, MicroBatchesAgreeWithOneBatchInEveryOrder) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    StepRig whole(kind.overrides);
    const auto expected = whole.train({batch_of(0, 4, kDocuments)});
    std::vector<data::Batch> singles;
    for (int64_t sample = 0; sample < 4; ++sample)
      singles.push_back(batch_of(sample, 1, kDocuments));
    for (const int breadth_first : {1, 2, 4}) {
      SCOPED_TRACE(breadth_first);
      StepRig cut(kind.overrides);
      expect_close(cut, cut.train(singles, 1, breadth_first), whole, expected);
    }
    StepRig uneven(kind.overrides);
    expect_close(uneven, uneven.train({singles[0], batch_of(1, 2, kDocuments), singles[3]}), whole,
                 expected);
  }
}

TEST(GptEquivalence, SplitsOfTheHeadChangeNothingButRounding) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const std::vector<data::Batch> batches{batch_of(0, 4)};
    StepRig whole(with(kind.overrides, {"cross_entropy_splits=1"}));
    const auto expected = whole.train(batches);
    StepRig cut(with(kind.overrides, {"cross_entropy_splits=4"}));
    expect_close(cut, cut.train(batches), whole, expected);
  }
}

// With fewer buffers than stages, weights are put in their place again and again, and gradients are
// handed on before the last micro-batch has added its own: other roundings. With all micro-batches
// in a stage one after another nothing is handed on early, and no bit changes.
TEST(GptEquivalence, ZeroStagesChangeNothingButRounding) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const std::vector<data::Batch> batches{batch_of(0, 1), batch_of(1, 1), batch_of(2, 1),
                                           batch_of(3, 1)};
    for (const int breadth_first : {1, 2, 4}) {
      SCOPED_TRACE(breadth_first);
      StepRig all(kind.overrides, {.store = {.zero_stage = 1}}),
          two(kind.overrides, {.store = {.zero_stage = 2}}),
          three(kind.overrides, {.store = {.zero_stage = 3}});
      EXPECT_LT(two.store.gradient_buffers().contents.size(), two.layout.stages().size());
      EXPECT_LT(three.store.weight_buffers().contents.size(), three.layout.stages().size());
      const auto expected = all.train(batches, 1, breadth_first),
                 found = two.train(batches, 1, breadth_first);
      EXPECT_EQ(found.losses, expected.losses);
      expect_close(two, found, all, expected);
      if (breadth_first == 4) {
        EXPECT_TRUE(two.copies("grads") == all.copies("grads"));
      }
      EXPECT_EQ(three.train(batches, 1, breadth_first).losses, expected.losses);
      EXPECT_TRUE(three.copies("grads") == two.copies("grads"));
    }
  }
}

}  // namespace
}  // namespace fastllm
