// The bounds of every bounded key, of the core and of gpt: the last value that is refused and the
// first that is accepted; and values that mean something of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/base/error.hpp"
#include "core/config/resolve.hpp"
#include "core/config/schema_impl.hpp"
#include "core/plugin/config_services.hpp"
#include "core/train/settings/settings.hpp"
#include "plugins/models/gpt/config.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm::train {
namespace {

using config::Node;
using testing::HasSubstr;
using testing::Not;

const config::Schema& schema() {
  static const config::Schema the_schema = test::gpt_schema();
  return the_schema;
}

using Assignments = std::vector<std::string>;

Node resolved(const Assignments& assignments) {
  Node user = Node::map();
  config::apply_overrides(user, assignments);
  return config::resolve(schema(), user).root;
}

// All that is said against a configuration; "": nothing.
std::string complaint(const Assignments& assignments) {
  try {
    Node root = resolved(assignments);
    if (std::string text = test::fill_gpt_defaults(root); !text.empty()) return text;
    make_settings(root, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalid);
    return error.what();
  }
  return "";
}

struct Bound {
  std::string path;
  std::vector<std::string> refused, accepted;
  Assignments also = {};  // what else must be so for the value to be looked at alone
};

std::vector<Bound> prefixed(const std::string& prefix, std::vector<Bound> bounds) {
  for (Bound& bound : bounds) bound.path = prefix + bound.path;
  return bounds;
}

const Assignments kFolder = {"run.experiment_dir=x"};

std::vector<Bound> core_bounds() {
  std::vector<Bound> all;
  const auto add = [&](const std::string& prefix, std::vector<Bound> bounds) {
    for (Bound& bound : prefixed(prefix, std::move(bounds))) all.push_back(std::move(bound));
  };
  add("run.", {{"tensor_logs.max_elements", {"0", "null"}, {"1"}},
               {"threads", {"0", "1025"}, {"1", "1024", "null"}}});
  for (const char* what : {"layer_outputs", "layer_gradients", "param_init", "param_gradients",
                           "all_param_gradients", "param_update"})
    add("model.multi_stage.debug_", {{what, {"-1", "null"}, {"0", "1"}}});
  add("model.multi_stage.", {{"layers_per_stage", {"0", "null"}, {"1e-3"}},
                             {"stages_per_pipeline_stage", {"0", "2"}, {"1"}},
                             {"num_weight_buffers", {"0"}, {"1", "null"}},
                             {"num_grad_buffers", {"0"}, {"1", "null"}},
                             {"zero_stage", {"0", "4"}, {"1", "3", "null"}},
                             {"pipeline_delay", {"-1e-9"}, {"0"}}});
  add("model.distributed.", {{"tensor_parallel", {"0", "1048577"}, {"1"}},
                             {"pipeline_parallel", {"0", "1048577"}, {"1"}},
                             {"sequence_data_parallel", {"0", "1048577"}, {"1"}},
                             {"world_size", {"0", "1048577"}, {"1", "1048576", "null"}},
                             {"rank", {"-1", "1"}, {"0", "null"}},
                             {"local_world_size",
                              {"0", "1048577"},
                              {"1", "1048576", "null"},
                              {"model.distributed.world_size=1048576"}},
                             {"timeout", {"0", "null"}, {"1e-3"}},
                             {"heartbeat_timeout", {"0.9", "null"}, {"1"}}});
  add("pretrained.", {{"timeout", {"0"}, {"1e-3", "null"}}});
  add("training.",
      {{"train_iters", {"-1", "null"}, {"0"}},
       {"test_iters", {"-1", "null"}, {"0"}},
       {"num_workers", {"-1", "1025"}, {"0", "1024"}},
       {"prefetch_factor", {"0", "1048577"}, {"1", "1048576", "null"}},
       {"timeout", {"0"}, {"1e-3", "null"}},
       {"wall_clock_limit", {"0"}, {"1e-3", "null"}},
       {"divergence.max_skipped", {"0", "null"}, {"1"}},
       {"divergence.loss_factor", {"1"}, {"1.001", "null"}},
       {"validation.interval", {"0"}, {"1", "null"}, {"training.validation.iterations=1"}},
       {"validation.offset", {"-1", "null"}, {"0"}},
       {"validation.iterations", {"0"}, {"1", "null"}},
       {"validation.seconds", {"0"}, {"1e-3", "null"}, {"training.validation.iterations=1"}},
       {"logs.interval", {"0"}, {"1", "null"}},
       {"logs.offset", {"-1", "null"}, {"0"}},
       {"logs.seconds", {"0"}, {"1e-3", "null"}},
       {"checkpoint.interval", {"0"}, {"1", "null"}, kFolder},
       {"checkpoint.offset", {"-1", "null"}, {"0"}},
       {"checkpoint.seconds", {"0"}, {"1e-3", "null"}, kFolder},
       {"checkpoint.keep", {"0"}, {"1", "null"}},
       {"checkpoint.keep_every", {"0"}, {"1", "null"}},
       {"export.interval", {"0"}, {"1", "null"}, kFolder},
       {"export.offset", {"-1", "null"}, {"0"}},
       {"export.keep", {"0"}, {"1", "null"}},
       {"export.keep_every", {"0"}, {"1", "null"}},
       {"export.parameters_per_file", {"1048575", "null"}, {"1048576"}},
       {"shutdown.interval",
        {"0"},
        {"1", "null"},
        {"run.experiment_dir=x", "training.checkpoint.interval=1"}},
       {"shutdown.offset", {"-1", "null"}, {"0"}},
       {"wandb.alert.interval", {"0"}, {"100", "null"}},
       {"wandb.alert.offset", {"-1", "null"}, {"0"}}});
  add("batch.", {{"micro_batch_size", {"0"}, {"1", "null"}},
                 {"depth_first_micro_batches", {"0", "1048577"}, {"1", "1048576", "null"}},
                 {"breadth_first_micro_batches", {"0", "1048577"}, {"1", "1048576", "null"}},
                 {"sequential_micro_batches", {"0"}, {"1", "null"}},
                 {"batch_size", {"0"}, {"1", "null"}},
                 {"sequence_length", {"0", "null"}, {"1"}},
                 {"micro_sequence_length", {"0"}, {"1", "null"}}});
  add("schedule.", {{"data_batch_warn_time_ms", {"0", "null"}, {"1e-3"}},
                    {"throttle_cpu_rate", {"0", "null"}, {"1"}},
                    {"throttle_cpu_delay", {"-1", "null"}, {"0"}}});
  add("data.", {{"data_sample_warn_time_ms", {"0", "null"}, {"1e-3"}},
                {"split", {"[-1, 1, 1]"}, {"[0, 0, 1]"}},
                {"sampling.maximum_document_length", {"0"}, {"1", "null"}}});
  add("data.fim.", {{"rate", {"-0.1", "1.1", "null"}, {"0", "1"}, {"data.tokenizer.path=x"}},
                    {"max_middle_len", {"0"}, {"1", "null"}},
                    {"fragment_rate", {"-0.1", "1.1"}, {"0", "1"}},
                    {"spm_rate", {"-0.1", "1.1"}, {"0", "1"}}});
  add("profiling.", {{"skip", {"-1", "null"}, {"0"}},
                     {"wait", {"-1", "null"}, {"0"}},
                     {"warmup", {"-1", "null"}, {"0"}},
                     {"cycles", {"0", "null"}, {"1"}},
                     {"table_width", {"39", "10001", "null"}, {"40", "10000"}},
                     {"ranks", {"[-1]", "null"}, {"[0]", "[]", "[1, 1]"}}});
  add("optimizer.", {{"weight_decay", {"-1e-9", "null"}, {"0"}},
                     {"beta_1", {"-0.1", "1", "1.1"}, {"0", "0.999999"}},
                     {"beta_2", {"-0.1", "1", "1.1"}, {"0", "0.999999"}},
                     {"epsilon", {"0", "null"}, {"1e-30"}},
                     {"gradient_norm_clipping", {"0", "null"}, {"1e-30", "1e9"}},
                     {"default_learning_rate_scale", {"-1e-9", "null"}, {"0"}},
                     {"gradient_scaler.constant", {"-1", "1e31"}, {"0", "1e30", "null"}},
                     {"gradient_scaler.initial", {"0", "1e31"}, {"1e-3", "1e30"}},
                     {"gradient_scaler.minimum", {"0", "1e31"}, {"1e-3", "1e30"}},
                     {"gradient_scaler.window", {"0", "null"}, {"1"}},
                     {"gradient_scaler.hysteresis", {"0", "null"}, {"1"}},
                     {"learning_rate.base", {"-1e-9", "null"}, {"0"}},
                     {"learning_rate.minimum", {"-1e-9", "null"}, {"0"}},
                     {"learning_rate.decay_iterations", {"0"}, {"1", "null"}},
                     {"learning_rate.decay_power", {"0", "null"}, {"1e-3"}},
                     {"learning_rate.warmup_iterations", {"-1", "null"}, {"0"}}});
  return all;
}

std::vector<Bound> model_bounds() {
  std::vector<Bound> all = {
      {"max_position_embeddings", {"0", "2147483648", "null"}, {"1"}},
      {"vocab_size", {"0", "2147483648", "null"}, {"1"}},
      {"init_method_std_embed", {"-1e-9"}, {"0", "null"}},
      {"cross_entropy_splits", {"0"}, {"1", "null"}},
      {"logit_z_loss", {"-1e-9", "null"}, {"0"}},
      {"logits_scale_factor", {"-1e-9", "null"}, {"0"}},
      {"prediction_heads", {"0", "65"}, {"1", "64"}},
      {"prediction_loss_coefficient", {"[-1e-9]"}, {"[0]", "null"}},
  };
  std::vector<Bound> transformer = {
      {"normalization.epsilon", {"0", "null"}, {"1e-30"}},
      {"normalization.initialization_range", {"-1e-9", "null"}, {"0"}},
      {"num_layers", {"-1", "65537", "null"}, {"0", "65536"}},
      {"hidden_size",
       {"0", "2147483648", "null"},
       {"1"},
       {"model.base_model.transformer.num_attention_heads=1"}},
      {"num_attention_heads", {"0", "null"}, {"1"}},
      {"head_groups", {"0", "null"}, {"1"}},
      {"ffn_hidden_size", {"0", "2147483648"}, {"1", "null"}},
      {"kv_channels", {"0", "2147483648"}, {"1", "null"}},
      {"num_experts",
       {"0", "65537", "null"},
       {"1", "65536"},
       {"model.base_model.transformer.add_linear_biases=false",
        "model.base_model.transformer.ffn_hidden_size=1"}},
      {"num_shared_experts", {"-1", "1", "null"}, {"0"}},
      {"num_experts_per_token", {"0", "2", "null"}, {"1"}},
      {"attention_dropout", {"-1e-9", "1", "null"}, {"0", "0.999999"}},
      {"hidden_dropout", {"-1e-9", "1", "null"}, {"0", "0.999999"}},
      {"window_size", {"0", "2147483648"}, {"1", "null"}},
      {"max_window_layers", {"-1"}, {"0", "null"}},
      {"debug_transformer", {"-1", "null"}, {"0"}},
      {"expert_auxiliary_loss_coefficient", {"-1e-9", "null"}, {"0"}},
      {"expert_z_loss_coefficient", {"-1e-9", "null"}, {"0"}},
      {"moe_jitter_eps", {"-1e-9", "null"}, {"0"}},
      {"mlp_lr_scale", {"[-1e-9]", "0"}, {"[0]", "[null]", "[]", "null"}},
      {"router_lr_scale", {"-1e-9"}, {"0", "null"}},
      {"attention_lr_scale", {"-1e-9"}, {"0", "null"}},
      {"embeddings_lr_scale", {"-1e-9"}, {"0", "null"}},
      {"output_lr_scale", {"-1e-9"}, {"0", "null"}, {"model.base_model.tie_word_embeddings=false"}},
      {"norm_lr_scale", {"-1e-9"}, {"0", "null"}},
      {"attention_softmax_scale_power", {"-1e-9"}, {"0", "null"}},
  };
  for (const char* group : {"", "_qkv", "_attn_proj", "_mlp_1", "_mlp_2"})
    transformer.push_back({std::string("init_method_std") + group, {"-1e-9"}, {"0", "null"}});
  for (Bound& bound : prefixed("transformer.", std::move(transformer)))
    all.push_back(std::move(bound));
  return prefixed("model.base_model.", std::move(all));
}

std::vector<Bound> all_bounds() {
  std::vector<Bound> all = core_bounds(), model = model_bounds();
  all.insert(all.end(), model.begin(), model.end());
  return all;
}

// What a plugin says has the path below its block.
std::string short_path(const std::string& path) {
  const std::string block = "model.base_model.";
  return path.starts_with(block) ? path.substr(block.size()) : path;
}

TEST(Bounds, AreWhereTheTableSays) {
  for (const Bound& bound : all_bounds()) {
    for (const std::string& value : bound.refused) {
      Assignments all = bound.also;
      all.push_back(bound.path + "=" + value);
      const std::string text = complaint(all);
      EXPECT_THAT(text, HasSubstr(short_path(bound.path) + ": ")) << all.back();
      EXPECT_THAT(text, Not(HasSubstr("\n"))) << "one wrong value, one error: " << all.back();
    }
    for (const std::string& value : bound.accepted) {
      Assignments all = bound.also;
      all.push_back(bound.path + "=" + value);
      EXPECT_EQ(complaint(all), "") << all.back();
    }
  }
}

// Each of these values breaks a rule; what stands in for it, or follows from it, breaks no other one.
TEST(Bounds, AWrongValueIsToldOnce) {
  const std::string model = "model.base_model.", at = model + "transformer.";
  const std::string rotary = at + "rotary.";
  const std::vector<Assignments> wrong = {
      {at + "hidden_size=3000000000"},
      {at + "hidden_size=3000000000", rotary + "type=default"},
      {at + "hidden_size=33", rotary + "type=default"},
      {at + "num_attention_heads=3000000000", at + "head_groups=8"},
      {at + "kv_channels=3000000000", rotary + "type=default"},
      {model + "prediction_heads=65", model + "prediction_loss_coefficient=[1, 1]"},
      {rotary + "type=llama3", rotary + "high_frequency_factor=-1"},
      {rotary + "type=yarn", rotary + "beta_fast=-1"},
      {rotary + "type=yarn", rotary + "scale_factor=-1"},
      {"model.distributed.tensor_parallel=3"},
      {"batch.batch_size=9223372036854775807", "batch.sequence_length=2", "training.train_iters=2",
       "training.test_iters=2", "training.validation.iterations=2"},
  };
  for (const Assignments& all : wrong) {
    const std::string text = complaint(all);
    EXPECT_THAT(text, Not(testing::IsEmpty())) << all.front();
    EXPECT_THAT(text, Not(HasSubstr("\n"))) << all.front();
  }
}

void collect_bounded(const config::Block& block, const std::string& at,
                     std::set<std::string>& paths) {
  for (const config::Entry& entry : block.entries) {
    if (entry.key == config::kAnyName) continue;  // as the block without a name
    const std::string path = config::join_path(at, entry.key);
    if (entry.block) collect_bounded(*entry.block, path, paths);
    if (entry.field && (std::isfinite(entry.field->minimum) || std::isfinite(entry.field->maximum)))
      paths.insert(path);
  }
}

TEST(Bounds, OfEveryBoundedKeyAreInTheTable) {
  std::set<std::string> declared, listed;
  collect_bounded(schema().impl().root, "", declared);
  for (const Bound& bound : all_bounds()) listed.insert(bound.path);
  for (const std::string& path : declared) EXPECT_TRUE(listed.count(path)) << path;
}

TEST(Bounds, OfDatasets) {
  const std::vector<Bound> bounds = {
      {"begin", {"-0.1", "1.1"}, {"0", "1"}, {"type: slice, dataset: {type: memmap, path: x}"}},
      {"end", {"-0.1", "1.1"}, {"0", "1"}, {"type: slice, dataset: {type: memmap, path: x}"}},
      {"num_documents", {"-1"}, {"0", "null"}, {"type: memmap, path: x"}},
      {"num_tokens", {"-1"}, {"0", "null"}, {"type: memmap, path: x"}},
      {"weights",
       {"[-1, 1]"},
       {"[0, 1]"},
       {"type: blended, datasets: [{type: random}, {type: random}]"}},
      {"datasets",
       {"[]", "[{type: random}]"},
       {"[{type: random}, {type: random}]"},
       {"type: blended, weights: [1, 1]"}},
      {"datasets", {"[]"}, {"[{type: memmap, path: x}]"}, {"type: concatenated"}},
      {"rate", {"-0.1", "1.1"}, {"0", "1"}, {"type: fim, dataset: {type: random}"}},
      {"max_middle_len", {"0"}, {"1", "null"}, {"type: fim, dataset: {type: random}"}},
      {"fragment_rate", {"-0.1", "1.1"}, {"0", "1"}, {"type: fim, dataset: {type: random}"}},
      {"spm_rate", {"-0.1", "1.1"}, {"0", "1"}, {"type: fim, dataset: {type: random}"}},
      {"sleep", {"-0.1"}, {"0"}, {"type: test_slow"}},
  };
  const std::string at = "data.datasets.Training";
  for (const Bound& bound : bounds) {
    const auto complaint_of = [&](const std::string& value) {
      return complaint({at + "={" + bound.also[0] + ", " + bound.path + ": " + value + "}"});
    };
    for (const std::string& value : bound.refused)
      EXPECT_THAT(complaint_of(value), HasSubstr(at + "." + bound.path + ": ")) << value;
    for (const std::string& value : bound.accepted)
      EXPECT_EQ(complaint_of(value), "") << bound.path << " " << value;
  }
}

TEST(Bounds, OfInitialValuesDoNotCross) {
  for (const std::string key :
       {"transformer.init_method_{}", "transformer.init_method_{}_qkv",
        "transformer.init_method_{}_attn_proj", "transformer.init_method_{}_mlp_1",
        "transformer.init_method_{}_mlp_2", "init_method_{}_embed"}) {
    const auto name = [&](const std::string& what) {
      std::string path = key;
      return path.replace(path.find("{}"), 2, what);
    };
    const auto with = [&](const char* minimum) {
      return complaint({"model.base_model." + name("max") + "=0.25",
                        "model.base_model." + name("min") + "=" + minimum});
    };
    const std::string maximum = name("max");
    const std::string expected = name("min") + ": expected at most " +
                                 maximum.substr(maximum.rfind('.') + 1) + " (0.25), found 0.5";
    EXPECT_EQ(with("0.5"), expected);  // not again for the groups that take the general pair over
    EXPECT_EQ(with("0.25"), "");
  }
}

// ---------------------------------------------------------------- values with a meaning of their own

TEST(SpecialValues, NoPositionsAtAll) {
  const Assignments none = {"model.base_model.use_position_embeddings=false",
                            "model.base_model.transformer.rotary.type=none"};
  EXPECT_EQ(complaint(none), "");
  Node root = resolved(none);
  EXPECT_EQ(test::fill_gpt_defaults(root), "");
  EXPECT_FALSE(root.get<bool>("model.base_model.use_position_embeddings"));
}

TEST(SpecialValues, TheSoftmaxScalesPowerIsAHalfWhenNullAndNoScaleWhen0) {
  const std::string path = "model.base_model.transformer.attention_softmax_scale_power";
  const auto scale = [&](const std::string& power) {
    Node root = resolved({path + "=" + power, "model.base_model.transformer.kv_channels=64"});
    plugin::ConfigTree tree(*root.find("model.base_model"));
    const double result = gpt::read_config(sdk::Config(tree.handle())).softmax_scale;
    EXPECT_EQ(root.get<double>(path), power == "null" ? 0.5 : std::stod(power));
    return result;
  };
  EXPECT_DOUBLE_EQ(scale("null"), 1.0 / 8);
  EXPECT_DOUBLE_EQ(scale("0.5"), 1.0 / 8);
  EXPECT_DOUBLE_EQ(scale("1"), 1.0 / 64);
  EXPECT_EQ(scale("0"), 1);
}

// A set in the reference: twice is once.
TEST(SpecialValues, RanksThatProfileAreASet) {
  Node root = resolved({"profiling.ranks=[3, 1, 1, 3]"});
  test::fill_gpt_defaults(root);
  EXPECT_THAT(make_settings(root, {}).profiling.ranks, testing::ElementsAre(1, 3));
  EXPECT_THAT(root.get_list<int64_t>("profiling.ranks"), testing::ElementsAre(1, 3));
}

TEST(SpecialValues, ChoicesThatNothingDependsOnAreAllTaken) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> keys = {
      {"model.base_model.cross_entropy_impl", {"auto", "torch", "fused", "triton"}},
      {"model.base_model.transformer.normalization.implementation",
       {"auto", "torch", "fused", "fast", "triton"}},
      {"pretrained.format",
       {"distributed", "fast_llm", "auto", "starcoder2", "llama", "qwen2", "mistral", "mixtral"}},
      {"training.export.format",
       {"distributed", "fast_llm", "auto", "starcoder2", "llama", "qwen2", "mistral", "mixtral"}},
      {"pretrained.load_config", {"none", "architecture", "model", "fast_llm"}},
  };
  for (const auto& [path, values] : keys) {
    const config::Entry* entry = config::find_entry(schema().impl().root, path);
    ASSERT_TRUE(entry && entry->field) << path;
    EXPECT_EQ(entry->field->choices, values) << path;
    for (const std::string& value : values) {
      const Assignments assignments = {path + "=" + value, "pretrained.path=null"};
      Node root = resolved(assignments);
      EXPECT_EQ(test::fill_gpt_defaults(root), "") << path << " " << value;
      const Settings settings = make_settings(root, {});
      EXPECT_NO_THROW(check_supported(settings, root)) << path << " " << value;
      EXPECT_EQ(root.get<std::string>(path), value);
    }
    EXPECT_THAT(complaint({path + "=other"}), HasSubstr(path + ": expected one of " + values[0]));
  }
}

}  // namespace
}  // namespace fastllm::train
