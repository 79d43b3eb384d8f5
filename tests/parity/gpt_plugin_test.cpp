// The gpt plugin as the host sees it: loaded from its file, configured through declared keys,
// described as the reference lays it out. An independent description
// (tests/support/gpt_description.hpp) is the judge of names, order, shapes and divisions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/config/resolve.hpp"
#include "core/shard/layout.hpp"
#include "core/train/settings/core_fields.hpp"
#include "core/train/settings/settings.hpp"
#include "tests/parity/gpt_model.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/support/gpt_description.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm {
namespace {

using testing::gpt;
using ::testing::HasSubstr;

const config::Schema& schema() {
  static const config::Schema schema = [] {
    config::Schema s = train::make_core_schema();
    train::add_model_fields(s, gpt().fields());
    return s;
  }();
  return schema;
}

struct Configured {
  config::Node root;
  std::unique_ptr<model::Model> model;
  std::vector<std::string> warnings;
  std::string refused;
};

Configured configure(const std::vector<std::string>& overrides) {
  config::Node user = config::Node::map();
  config::apply_overrides(user, overrides);
  auto resolved = config::resolve(schema(), user);
  Configured result{std::move(resolved.root), nullptr, std::move(resolved.warnings), ""};
  try {
    result.model = gpt().create(*result.root.find("model.base_model"));
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalid);
    result.refused = e.what();
  }
  return result;
}
std::string at(const std::string& assignment) { return "model.base_model." + assignment; }

std::string golden(const std::string& name) {
  return read_file(std::string(FASTLLM_SOURCE_DIR "/tests/fixtures/config/") + name + ".yaml");
}

// ---------------------------------------------------------------- configuration

TEST(GptConfiguration, DefaultDumpsEqualTheReference) {
  auto c = configure({});
  ASSERT_EQ(c.refused, "");
  train::make_settings(c.root, {});
  EXPECT_EQ(config::to_yaml(config::dump(schema(), c.root, 0)), golden("default-verbose-0"));
  EXPECT_EQ(config::to_yaml(config::dump(schema(), c.root, 20)), golden("default-verbose-20"));
}

TEST(GptConfiguration, ComputesWhatHasNoValueFromWhatIsGiven) {
  auto c = configure({at("transformer.hidden_size=100"), at("transformer.num_attention_heads=5"),
                      at("transformer.gated=true"), at("transformer.num_layers=8"),
                      at("transformer.init_method_std=0.5"), at("transformer.init_method_max=1.5"),
                      at("transformer.rotary.type=default"), at("transformer.mlp_lr_scale=null")});
  ASSERT_EQ(c.refused, "");
  const auto& node = *c.root.find("model.base_model");
  EXPECT_EQ(node.get<int64_t>("transformer.kv_channels"), 20);
  EXPECT_EQ(node.get<int64_t>("transformer.ffn_hidden_size"), 400);
  EXPECT_EQ(node.get<std::string>("transformer.activation_type"), "silu");
  EXPECT_EQ(node.get<bool>("use_position_embeddings"), false);
  EXPECT_EQ(node.get<double>("transformer.init_method_std_qkv"), 0.5);
  EXPECT_EQ(node.get<double>("transformer.init_method_std_mlp_2"), 0.125);  // / sqrt(2 * 8)
  EXPECT_EQ(node.get<double>("init_method_std_embed"), 0.5);
  EXPECT_EQ(node.get<double>("transformer.init_method_max_attn_proj"), 1.5);
  EXPECT_EQ(node.get<double>("init_method_max_embed"), 1.5);
  EXPECT_TRUE(node.find("transformer.init_method_min_qkv")->is_null());
  EXPECT_EQ(config::to_yaml(*node.find("transformer.mlp_lr_scale")), "- null\n");
}

TEST(GptConfiguration, TakesAnEmptyListOfScalesForNone) {
  const auto c = configure({at("transformer.mlp_lr_scale=[]")});
  ASSERT_EQ(c.refused, "");
  for (const auto& parameter : c.model->description().parameters) EXPECT_FALSE(parameter.frozen());
}

TEST(GptConfiguration, ReportsEveryProblemAtOnce) {
  const auto c =
      configure({at("transformer.head_groups=3"), at("transformer.normalization.epsilon=0"),
                 at("transformer.hidden_size=100"), at("transformer.mlp_lr_scale=[0,1]"),
                 at("transformer.output_lr_scale=0.5"), at("transformer.init_method_max=1"),
                 at("transformer.init_method_min=2"), at("vocab_size=3000000000")});
  EXPECT_THAT(
      c.refused,
      HasSubstr("transformer.head_groups: expected a divisor of num_attention_heads (8), found 3"));
  EXPECT_THAT(c.refused,
              HasSubstr("\ntransformer.normalization.epsilon: expected a number above 0, found 0"));
  EXPECT_THAT(c.refused,
              HasSubstr("\ntransformer.kv_channels: expected hidden_size (100) to be a multiple of "
                        "num_attention_heads (8) when no value is given; give one"));
  EXPECT_THAT(
      c.refused,
      HasSubstr(
          "\ntransformer.mlp_lr_scale: expected 1 entry or num_experts (1) entries, found 2"));
  EXPECT_THAT(
      c.refused,
      HasSubstr(
          "\ntransformer.output_lr_scale: expected null with tie_word_embeddings, since the one "
          "weight belongs to the embedding, found 0.5; use transformer.embeddings_lr_scale"));
  EXPECT_THAT(
      c.refused,
      HasSubstr("\ntransformer.init_method_min: expected at most init_method_max (1), found 2"));
  EXPECT_THAT(c.refused, HasSubstr("\nvocab_size: expected at most 2147483647, found 3000000000"));
}

TEST(GptConfiguration, RefusesSizesThatNoComputerHolds) {
  EXPECT_THAT(configure({at("transformer.num_layers=1000000")}).refused,
              HasSubstr("transformer.num_layers: expected at most 65536, found 1000000"));
  EXPECT_THAT(configure({at("transformer.num_attention_heads=2000000000"),
                         at("transformer.kv_channels=2000000000")})
                  .refused,
              HasSubstr("transformer.num_attention_heads: expected num_attention_heads times "
                        "kv_channels to be at most "
                        "2147483647, found 2000000000 times 2000000000"));
  EXPECT_THAT(configure({at("transformer.hidden_size=1000000000")}).refused,
              HasSubstr("transformer.ffn_hidden_size: expected at most 2147483647, found "
                        "4000000000 = 4 hidden_size, since no value is given; give a smaller one"));
  EXPECT_EQ(configure({at("transformer.hidden_size=1000000000"), at("transformer.head_groups=8"),
                       at("transformer.kv_channels=128"), at("transformer.ffn_hidden_size=2048"),
                       at("vocab_size=100"), at("max_position_embeddings=2048")})
                .refused,
            "max_position_embeddings: expected it times transformer.hidden_size to be at most "
            "1099511627776 elements of a matrix, found 2048 times 1000000000; make one of them "
            "smaller\n"
            "transformer.head_groups: expected twice it times transformer.kv_channels times "
            "transformer.hidden_size to be at most 1099511627776 elements of a matrix, found 2048 "
            "times 1000000000; make one of them smaller\n"
            "transformer.ffn_hidden_size: expected it times transformer.hidden_size to be at most "
            "1099511627776 elements of a matrix, found 2048 times 1000000000; make one of them "
            "smaller");
  EXPECT_THAT(configure({at("vocab_size=2000000000")}).refused,
              HasSubstr("vocab_size: expected it times transformer.hidden_size to be at most "
                        "1099511627776 elements of a matrix, found 2000000000 times 1024"));
  EXPECT_THAT(
      configure({at("transformer.rotary.type=default"), at("transformer.kv_channels=15")}).refused,
      HasSubstr("transformer.kv_channels: expected an even number, since rotary embeddings turn "
                "pairs, found 15"));
  EXPECT_THAT(
      configure({at("transformer.rotary.type=default"), at("transformer.rotary.theta=-1")}).refused,
      HasSubstr("transformer.rotary.theta: expected a number above 0, found -1"));
}

TEST(GptConfiguration, RefusesExpertsThatCannotBe) {
  const auto refused = [](std::vector<std::string> values) {
    for (auto& value : values) value = at("transformer." + value);
    return configure(values).refused;
  };
  const std::string without_biases = "add_linear_biases=false";
  EXPECT_EQ(
      refused({without_biases, "num_experts=4", "num_experts_per_token=3", "num_shared_experts=1"}),
      "");
  EXPECT_EQ(refused({"add_linear_biases=nowhere", "num_experts=4"}), "");
  EXPECT_EQ(
      refused({without_biases, "num_experts=4", "num_experts_per_token=3", "num_shared_experts=2"}),
      "transformer.num_experts_per_token: expected num_experts_per_token and "
      "num_shared_experts to be together at most num_experts (4), found 3 and 2");
  EXPECT_THAT(refused({"num_experts_per_token=2"}), HasSubstr("at most num_experts (1)"));
  EXPECT_EQ(refused({"num_shared_experts=1"}),
            "transformer.num_shared_experts: expected less than num_experts (1), found 1");
  EXPECT_EQ(refused({without_biases, "num_experts=65537"}),
            "transformer.num_experts: expected at most 65536, found 65537");
  for (const char* biases : {"true", "everywhere", "only_attn_qkv"}) {
    EXPECT_EQ(refused({std::string("add_linear_biases=") + biases, "num_experts=2"}),
              std::string("transformer.add_linear_biases: expected false with experts (num_experts "
                          "2), which have no biases, found ") +
                  biases);
  }
  EXPECT_EQ(refused({without_biases, "num_experts=4", "mlp_lr_scale=[0,1]"}),
            "transformer.mlp_lr_scale: expected 1 entry or num_experts (4) entries, found 2");
  EXPECT_EQ(refused({without_biases, "num_experts=65536", "ffn_hidden_size=2000000"}),
            "transformer.num_experts: expected it times transformer.ffn_hidden_size times "
            "transformer.hidden_size to be at most 1099511627776 elements of a matrix, found "
            "131072000000 times 1024; make one of them smaller");
}

TEST(GptConfiguration, RefusesAttentionThatHasNoMeaning) {
  const auto refused = [](std::vector<std::string> values) {
    for (auto& value : values) value = at("transformer." + value);
    return configure(values).refused;
  };
  EXPECT_EQ(refused({"window_size=1", "max_window_layers=0", "attention_dropout=0.99"}), "");
  EXPECT_EQ(refused({"attention_dropout=1"}),
            "transformer.attention_dropout: expected a share below 1, found 1; 0 drops nothing");
  EXPECT_THAT(refused({"kv_channels=1073741824", "num_attention_heads=1"}),
              HasSubstr("transformer.head_groups: expected twice head_groups times kv_channels to "
                        "be at most 2147483647, found twice 1 times 1073741824"));

  EXPECT_EQ(refused({"rotary.type=linear", "rotary.scale_factor=0"}),
            "transformer.rotary.scale_factor: expected a number above 0, found 0");
  EXPECT_EQ(refused({"rotary.type=llama3", "rotary.original_context_length=0"}),
            "transformer.rotary.original_context_length: expected at least 1 token, found 0");
  EXPECT_EQ(
      refused({"rotary.type=llama3", "rotary.low_frequency_factor=4"}),
      "transformer.rotary.low_frequency_factor: expected less than high_frequency_factor (4), "
      "found 4");
  EXPECT_EQ(refused({"rotary.type=llama3", "rotary.low_frequency_factor=0"}),
            "transformer.rotary.low_frequency_factor: expected a number above 0, found 0");
  EXPECT_EQ(refused({"rotary.type=yarn", "rotary.theta=1"}),
            "transformer.rotary.theta: expected a number above 1, found 1");
  EXPECT_EQ(refused({"rotary.type=yarn", "rotary.beta_slow=33"}),
            "transformer.rotary.beta_slow: expected at most beta_fast (32), found 33");
  EXPECT_EQ(refused({"rotary.type=yarn", "rotary.attention_factor=0"}),
            "transformer.rotary.attention_factor: expected a number above 0, found 0");
  EXPECT_THAT(refused({"rotary.type=yarn", "rotary.scale_factor=1.0e-10"}),
              HasSubstr("= 0.1 ln(scale_factor) + 1, since no value is given; give one"));
  // What another type reads is not looked at.
  EXPECT_EQ(refused({"rotary.type=default", "rotary.scale_factor=0", "rotary.beta_slow=33"}), "");
}

TEST(GptConfiguration, RefusesWhatItWillNotDoAndSaysWhy) {
  EXPECT_EQ(configure({at("use_megatron_initialization=true")}).refused,
            "use_megatron_initialization: expected false, found true, which replays another "
            "system's random numbers; initial values here depend on seed and name alone, so load "
            "that system's weights instead");
  EXPECT_EQ(configure({at("transformer.hidden_dropout=1")}).refused,
            "transformer.hidden_dropout: expected a share below 1, found 1; 0 drops nothing");
}

TEST(GptConfiguration, ChecksPredictionHeadsAndTheirCoefficients) {
  EXPECT_EQ(configure({at("prediction_heads=65")}).refused,
            "prediction_heads: expected at most 64, found 65");
  EXPECT_EQ(
      configure({at("prediction_heads=3"), at("prediction_loss_coefficient=[1,0.5]")}).refused,
      "prediction_loss_coefficient: expected one number for each of the 3 prediction_heads, "
      "found 2");
  EXPECT_EQ(
      configure({at("prediction_heads=2"), at("prediction_loss_coefficient=[1,null]")}).refused,
      "prediction_loss_coefficient: expected numbers, found null for one of them");
  for (const char* none : {"null", "[]"}) {
    const auto c = configure(
        {at("prediction_heads=2"), at(std::string("prediction_loss_coefficient=") + none)});
    EXPECT_EQ(c.refused, "");
  }
}

TEST(GptConfiguration, SaysOnceWhenAValueHasNoEffect) {
  const test::CapturedLog log;
  const auto c = configure(
      {at("cross_entropy_impl=triton"), at("transformer.normalization.implementation=fast"),
       at("transformer.dropless_moe=false"), at("transformer.dropless_dynamic_shape=true"),
       at("transformer.use_flash_attention=false"), at("transformer.router_lr_scale=0"),
       at("transformer.expert_auxiliary_loss_coefficient=0.5"),
       at("transformer.max_window_layers=2"), at("sequence_first=false")});
  configure({});                                 // defaults: silent
  configure({at("cross_entropy_impl=triton")});  // said already
  EXPECT_EQ(c.refused, "");
  const std::string text = log.text();
  for (const char* key : {"cross_entropy_impl", "transformer.normalization.implementation",
                          "transformer.dropless_moe", "transformer.dropless_dynamic_shape",
                          "transformer.use_flash_attention", "sequence_first"}) {
    EXPECT_THAT(text, HasSubstr("plugin fastllm.gpt: model.base_model." + std::string(key) +
                                ": no effect here"));
  }
  for (const char* key : {"router_lr_scale", "expert_auxiliary_loss_coefficient"}) {
    EXPECT_THAT(text, HasSubstr("model.base_model.transformer." + std::string(key) +
                                ": no effect with num_experts 1"));
  }
  EXPECT_THAT(text, HasSubstr("transformer.max_window_layers: no effect without window_size"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 9) << text;
}

TEST(GptConfiguration, SaysThatABalancingLossHasNoEffectWithSinkhorn) {
  const test::CapturedLog log;
  EXPECT_EQ(configure({at("transformer.add_linear_biases=false"), at("transformer.num_experts=4"),
                       at("transformer.expert_routing_type=sinkhorn"),
                       at("transformer.moe_jitter_eps=0.1"),
                       at("transformer.expert_auxiliary_loss_coefficient=0.5")})
                .refused,
            "");
  EXPECT_THAT(log.text(),
              HasSubstr("model.base_model.transformer.expert_auxiliary_loss_coefficient: no effect "
                        "with expert_routing_type sinkhorn"));
  EXPECT_EQ(std::ranges::count(log.text(), '\n'), 1) << log.text();
}

TEST(GptConfiguration, AcceptsOldNamesWithAWarning) {
  const auto c = configure(
      {at("transformer.use_rotary_embeddings=true"), at("transformer.triton_rotary=false"),
       at("transformer.normalization_type=rms_norm"), at("transformer.layer_norm_eps=0.001"),
       at("transformer.zero_centered_normalization=true"), at("match_megatron=false")});
  EXPECT_EQ(c.refused, "");
  EXPECT_EQ(c.warnings.size(), 6u);
  const auto& node = *c.root.find("model.base_model");
  EXPECT_EQ(node.get<std::string>("transformer.rotary.type"), "default");
  EXPECT_EQ(node.get<bool>("transformer.rotary.triton"), false);
  EXPECT_EQ(node.get<std::string>("transformer.normalization.type"), "rms_norm");
  EXPECT_EQ(node.get<double>("transformer.normalization.epsilon"), 0.001);
  EXPECT_EQ(node.get<bool>("transformer.normalization.zero_centered"), true);
}

// ---------------------------------------------------------------- description

// Everything that decides where a parameter lies, for one and for two tensor ranks.
void expect_same_layout(const std::vector<std::string>& overrides, const test::GptShape& shape) {
  const auto c = configure(overrides);
  ASSERT_EQ(c.refused, "");
  const auto& actual = c.model->description();
  const auto expected = test::gpt_description(shape);
  for (int tensor : {1, 2}) {
    SCOPED_TRACE(tensor);
    const shard::World world{.tensor = tensor};
    const shard::Layout a(actual, world, {}), e(expected, world, {});
    ASSERT_EQ(a.stages().size(), e.stages().size());
    for (size_t s = 0; s < a.stages().size(); ++s) {
      ASSERT_EQ(a.stages()[s].groups.size(), e.stages()[s].groups.size()) << "stage " << s;
      for (size_t g = 0; g < a.stages()[s].groups.size(); ++g) {
        const auto &ours = a.stages()[s].groups[g].pieces, &theirs = e.stages()[s].groups[g].pieces;
        ASSERT_EQ(ours.size(), theirs.size()) << "stage " << s;
        for (size_t p = 0; p < ours.size(); ++p) {
          const auto& name = expected.parameters[size_t(theirs[p].parameter)].name;
          EXPECT_EQ(actual.parameters[size_t(ours[p].parameter)].name, name);
          EXPECT_EQ(ours[p].local, theirs[p].local) << name;
          EXPECT_EQ(ours[p].begin, theirs[p].begin) << name;
        }
      }
    }
  }
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (size_t i = 0; i < actual.parameters.size(); ++i) {
    EXPECT_EQ(actual.parameters[i].name, expected.parameters[i].name);
    EXPECT_EQ(actual.parameters[i].weight_decay, expected.parameters[i].weight_decay)
        << actual.parameters[i].name;
    EXPECT_EQ(actual.parameters[i].frozen(), expected.parameters[i].frozen())
        << actual.parameters[i].name;
  }
}

TEST(GptDescription, OfTheDefaultModelIsTheReferences) { expect_same_layout({}, {}); }

TEST(GptDescription, OfALlamaLikeModelIsTheReferences) {
  expect_same_layout(
      {at("transformer.num_layers=2"), at("transformer.hidden_size=48"),
       at("transformer.num_attention_heads=4"), at("transformer.head_groups=2"),
       at("transformer.kv_channels=16"), at("transformer.ffn_hidden_size=80"),
       at("transformer.gated=true"), at("transformer.add_linear_biases=false"),
       at("transformer.normalization.type=rms_norm"), at("transformer.rotary.type=default"),
       at("vocab_size=50"), at("tie_word_embeddings=false")},
      {.layers = 2,
       .hidden = 48,
       .heads = 4,
       .head_groups = 2,
       .kv_channels = 16,
       .ffn = 80,
       .vocabulary = 50,
       .rotary = true,
       .rms_norm = true,
       .gated = true,
       .biases = false,
       .tied = false,
       .scales = {}});
}

TEST(GptDescription, OfFrozenKindsIsTheReferences) {
  const std::vector<std::string> small = {at("transformer.num_layers=2"),
                                          at("transformer.hidden_size=64"), at("vocab_size=50")};
  const auto with = [&](std::vector<std::string> more, const std::string& kind, bool tied = true) {
    more.insert(more.end(), small.begin(), small.end());
    test::GptShape shape;
    shape.layers = 2, shape.hidden = 64, shape.vocabulary = 50;
    shape.tied = tied;
    shape.scales[kind] = {0.0};
    SCOPED_TRACE(kind);
    expect_same_layout(more, shape);
  };
  with({at("transformer.mlp_lr_scale=[0]")}, "mlp");
  with({at("transformer.attention_lr_scale=0")}, "attention");
  with({at("transformer.embeddings_lr_scale=0")}, "embeddings");
  with({at("transformer.norm_lr_scale=0")}, "norm");
  with({at("transformer.output_lr_scale=0"), at("tie_word_embeddings=false")}, "output", false);
}

// Each scale reaches the parameters of its kind, weights and biases, and no others.
TEST(GptDescription, GivesEachKindItsLearningRateScale) {
  const auto kind_of = [](const std::string& name) -> std::string {
    if (name.find("norm") + 1) return "norm";
    if (name.find(".self_attn.") + 1) return "attention";
    if (name.find(".mlp.") + 1) return "mlp";
    return name.find("embeddings_weight") + 1 ? "embeddings" : "output";
  };
  for (const std::string kind : {"norm", "attention", "mlp", "embeddings", "output"}) {
    const std::string value = kind == "mlp" ? "[0.25]" : "0.25";
    const auto c = configure({at("transformer.num_layers=1"), at("transformer.hidden_size=64"),
                              at("vocab_size=50"), at("tie_word_embeddings=false"),
                              at("transformer.query_key_norm=true"),
                              at("transformer." + kind + "_lr_scale=" + value)});
    ASSERT_EQ(c.refused, "");
    int scaled = 0;
    for (const auto& parameter : c.model->description().parameters) {
      const bool expected = kind_of(parameter.name) == kind;
      EXPECT_EQ(parameter.lr_scales, expected ? std::vector<double>{0.25} : std::vector<double>{})
          << parameter.name;
      scaled += expected;
    }
    EXPECT_GT(scaled, 0) << kind;
  }
}

// Which linear layers have a bias, for each way to say it.
TEST(GptDescription, HasTheBiasesThatAreAskedFor) {
  struct Row {
    const char* value;
    bool query, dense, mlp;
  };
  const Row rows[] = {{"true", true, true, true},
                      {"everywhere", true, true, true},
                      {"false", false, false, false},
                      {"nowhere", false, false, false},
                      {"only_attn_qkv", true, false, false}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.value);
    const auto c = configure({at(std::string("transformer.add_linear_biases=") + row.value),
                              at("transformer.num_layers=1")});
    ASSERT_EQ(c.refused, "");
    const auto has = [&](const std::string& suffix) {
      return std::ranges::any_of(c.model->description().parameters,
                                 [&](const auto& p) { return p.name.ends_with(suffix); });
    };
    EXPECT_EQ(has(".query.bias"), row.query);
    EXPECT_EQ(has(".key_value.bias"), row.query);
    EXPECT_EQ(has(".dense.bias"), row.dense);
    EXPECT_EQ(has(".layer_1.bias"), row.mlp);
    EXPECT_EQ(has(".layer_2.bias"), row.mlp);
    EXPECT_TRUE(has(".query.weight") && has(".layer_2.weight"));
  }
  for (const char* bad : {"sometimes", "123", "null", "[true]"}) {
    EXPECT_THAT(test::message_of(
                    [&] { configure({at(std::string("transformer.add_linear_biases=") + bad)}); }),
                HasSubstr("model.base_model.transformer.add_linear_biases: expected one of true, "
                          "false, everywhere, nowhere, only_attn_qkv, found "));
  }
}

TEST(GptDescription, HasNoPositionsWhenNoneAreAskedFor) {
  const auto has_table = [](const std::string& value) {
    const auto c = configure({at("use_position_embeddings=" + value),
                              at("transformer.rotary.type=none"), at("transformer.num_layers=1")});
    EXPECT_EQ(c.refused, "");
    return std::ranges::any_of(c.model->description().parameters, [](const auto& p) {
      return p.name.find("position_embeddings") != std::string::npos;
    });
  };
  EXPECT_FALSE(has_table("false"));
  EXPECT_TRUE(has_table("true"));
  EXPECT_TRUE(has_table("null"));
}

TEST(GptDescription, HasNormsOfQueriesAndKeysWhenAskedFor) {
  const auto names = [](const std::vector<std::string>& values) {
    std::vector<std::string> result;
    const auto c = configure(values);
    for (const auto& parameter : c.model->description().parameters)
      if (parameter.name.find("query_norm") + 1 || parameter.name.find("key_norm") + 1) {
        result.push_back(parameter.name);
        EXPECT_EQ(parameter.shape, std::vector<int64_t>{24});
        EXPECT_EQ(parameter.weight_decay, 0);
        EXPECT_EQ(parameter.init, FASTLLM_INIT_ONES);
        EXPECT_TRUE(parameter.frozen());
      }
    return result;
  };
  const std::vector<std::string> small = {at("transformer.num_layers=1"),
                                          at("transformer.kv_channels=24"), at("vocab_size=50"),
                                          at("transformer.norm_lr_scale=0")};
  EXPECT_EQ(names(small), std::vector<std::string>{});
  auto with = small;
  with.push_back(at("transformer.query_key_norm=true"));
  EXPECT_THAT(names(with), ::testing::ElementsAre("layers.1.self_attn.query_norm.weight",
                                                  "layers.1.self_attn.key_norm.weight"));
}

TEST(GptDescription, WithoutDividedVocabularyIsTheReferences) {
  test::GptShape shape;
  shape.layers = 1, shape.hidden = 64, shape.vocabulary = 50;
  shape.parallel_embeddings = false;
  expect_same_layout({at("transformer.num_layers=1"), at("transformer.hidden_size=64"),
                      at("vocab_size=50"), at("parallel_embeddings=false")},
                     shape);
}

TEST(GptDescription, DeclaresInitialValuesByRole) {
  const auto c = configure(
      {at("transformer.num_layers=2"), at("transformer.hidden_size=64"), at("vocab_size=50"),
       at("transformer.init_method_std=0.25"), at("transformer.init_method_max=0.5"),
       at("transformer.init_method_min=-0.5"), at("init_method_std_embed=0.125"),
       at("transformer.normalization.initialization_range=0.0625"),
       at("transformer.random_bias_init=true")});
  const auto find = [&](const std::string& name) {
    for (const auto& parameter : c.model->description().parameters) {
      if (parameter.name == name) return parameter;
    }
    throw std::out_of_range(name);
  };
  const auto query = find("layers.1.self_attn.query.weight"),
             dense = find("layers.2.self_attn.dense.weight");
  EXPECT_EQ(query.init, FASTLLM_INIT_NORMAL);
  EXPECT_EQ(query.init_b, 0.25);
  EXPECT_EQ(query.init_max, 0.5);
  EXPECT_EQ(query.init_min, -0.5);
  EXPECT_EQ(dense.init_b, 0.125);  // 0.25 / sqrt(2 * 2)
  EXPECT_EQ(find("layers.1.mlp.layer_2.weight").init_b, 0.125);
  EXPECT_EQ(find("layers.1.mlp.layer_1.bias").init_b, 0.25);
  EXPECT_EQ(find("layers.0.position_embeddings_weight").init_b, 0.125);
  const auto norm = find("layers.3.final_norm.weight");
  EXPECT_EQ(norm.init, FASTLLM_INIT_UNIFORM);
  EXPECT_EQ(norm.init_a, 1 - 0.0625);
  EXPECT_EQ(norm.init_b, 1 + 0.0625);
  const auto plain = configure({});
  for (const auto& parameter : plain.model->description().parameters) {
    if (parameter.name.ends_with(".bias")) {
      EXPECT_EQ(parameter.init, FASTLLM_INIT_ZEROS) << parameter.name;
    }
    if (parameter.name.ends_with("norm_1.weight")) {
      EXPECT_EQ(parameter.init, FASTLLM_INIT_ONES) << parameter.name;
    }
  }
}

// docs/compatibility.md, the worked example: flops a token, times the tokens of its step.
TEST(GptFlops, AreThoseOfTheReferencesWorkedExample) {
  const auto c =
      configure({at("transformer.num_layers=30"), at("transformer.hidden_size=576"),
                 at("transformer.num_attention_heads=9"), at("transformer.head_groups=3"),
                 at("transformer.kv_channels=64"), at("transformer.ffn_hidden_size=1536"),
                 at("transformer.gated=true"), at("transformer.add_linear_biases=false"),
                 at("transformer.rotary.type=default")});
  double forward = 0, recomputed = 0;
  for (int layer = 0; layer < 32; ++layer) {
    const auto flops = c.model->flops(layer, 3, 1024);
    forward += flops.forward;
    recomputed += flops.recomputed;
  }
  const double tokens = 3 * 1024;
  EXPECT_DOUBLE_EQ(3 * forward / tokens, 913047552.0);
  EXPECT_DOUBLE_EQ((3 * forward + recomputed) / tokens, 930742272.0);
}

// With a window w of a length s attention is 2 w (1 - w / (2 s)) / s of what it is without.
TEST(GptFlops, CountWhatAWindowLeavesOfAttention) {
  const auto forward = [](const std::vector<std::string>& more, int layer) {
    std::vector<std::string> values = {at("transformer.num_layers=2"),
                                       at("transformer.hidden_size=64"), at("vocab_size=50")};
    values.insert(values.end(), more.begin(), more.end());
    return configure(values).model->flops(layer, 2, 100);
  };
  const auto none = forward({}, 1), window = forward({at("transformer.window_size=25")}, 1);
  const double attention = 2.0 * 2 * 100 * 64 * 100;
  EXPECT_DOUBLE_EQ(none.recomputed, attention / 2);
  EXPECT_DOUBLE_EQ(window.recomputed, attention / 2 * 0.4375);
  EXPECT_DOUBLE_EQ(none.forward - window.forward, attention * (1 - 0.4375));
  EXPECT_EQ(forward({at("transformer.window_size=200")}, 1).forward, none.forward);
  const std::vector<std::string> second = {at("transformer.window_size=25"),
                                           at("transformer.max_window_layers=2")};
  EXPECT_EQ(forward(second, 1).forward, none.forward);
  EXPECT_EQ(forward(second, 2).forward, window.forward);
  // Above the number of blocks: none has a window.
  const std::vector<std::string> beyond = {at("transformer.window_size=25"),
                                           at("transformer.max_window_layers=3")};
  EXPECT_EQ(forward(beyond, 1).forward, none.forward);
  EXPECT_EQ(forward(beyond, 2).forward, none.forward);
}

}  // namespace
}  // namespace fastllm
