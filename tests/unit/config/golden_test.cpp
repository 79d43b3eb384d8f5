// Dumps equal to the reference's, text for text (docs/compatibility.md).
#include <gtest/gtest.h>

#include "core/base/file.hpp"
#include "core/config/resolve.hpp"
#include "core/train/settings/settings.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm {
namespace {

config::Node resolved(const std::string& yaml, const std::vector<std::string>& overrides) {
  config::Schema schema = test::gpt_schema();
  config::Node user = yaml.empty() ? config::Node::map() : config::parse_yaml(yaml, "train.yaml");
  config::apply_overrides(user, overrides);
  config::Node root = config::resolve(schema, user).root;
  test::fill_gpt_defaults(root);
  train::make_settings(root, {});
  return root;
}

std::string golden(const std::string& name) {
  return read_file(std::string(FASTLLM_SOURCE_DIR "/tests/fixtures/config/") + name + ".yaml");
}

TEST(Dump, OfTheDefaultsEqualsTheReference) {
  config::Schema schema = test::gpt_schema();
  config::Node root = resolved("", {});
  EXPECT_EQ(config::to_yaml(config::dump(schema, root, 0)), golden("default-verbose-0"));
  EXPECT_EQ(config::to_yaml(config::dump(schema, root, 20)), golden("default-verbose-20"));
}

const char* const kMistral = R"(
run: {experiment_dir: mistral_example}
training:
  train_iters: 100
  num_workers: 8
  logs: {interval: 10}
  validation: {iterations: null}
  test_iters: 0
batch: {sequence_length: 4096, micro_batch_size: 2, batch_size: 64}
data: {datasets: {Training: {type: random}}}
optimizer:
  learning_rate: {base: 1e-5, decay_style: constant}
  weight_decay: 0.1
  beta_1: 0.9
  beta_2: 0.95
model:
  base_model:
    transformer:
      normalization: {type: rms_norm, epsilon: 1e-5}
      rotary: {type: default, theta: 10000}
      num_layers: 32
      hidden_size: 4096
      ffn_hidden_size: 14336
      num_attention_heads: 32
      head_groups: 8
      add_linear_biases: false
      activation_type: silu
      gated: true
      kv_channels: 128
      window_size: 4096
      init_method_std: 0.009021
    vocab_size: 32000
    tie_word_embeddings: false
  multi_stage: {zero_stage: 2}
  distributed: {training_dtype: bf16, seed: 984059}
)";

TEST(Dump, OfTheMistralExampleEqualsTheReference) {
  config::Schema schema = test::gpt_schema();
  config::Node root = resolved(kMistral, {"model.base_model.transformer.mlp_lr_scale=[0]",
                                          "batch.depth_first_micro_batches=32"});
  EXPECT_EQ(config::to_yaml(config::dump(schema, root, 0)), golden("mistral-frozen"));
}

TEST(Dump, ReadsBackToItself) {
  config::Schema schema = test::gpt_schema();
  config::Node root = resolved(kMistral, {});
  for (int verbosity : {0, 20, -1}) {
    std::string text = config::to_yaml(config::dump(schema, root, verbosity));
    config::Node again = resolved(text, {});
    EXPECT_EQ(config::to_yaml(config::dump(schema, again, verbosity)), text) << verbosity;
    EXPECT_EQ(again, root) << verbosity;
  }
}

TEST(Dump, OfEverythingHoldsEveryKey) {
  config::Schema schema = test::gpt_schema();
  config::Node root = resolved("", {});
  EXPECT_EQ(config::dump(schema, root, -1), root);
  EXPECT_TRUE(root.has("training.recompute_activations"));
  EXPECT_TRUE(root.has("run.threads"));
  EXPECT_TRUE(config::dump(schema, root, -1).has("training.checkpoint.callback.environment"));
}

TEST(Dump, IsPrintedBetweenLinesOfDashes) {
  config::Node node = config::parse_yaml("a: 1", "t");
  EXPECT_EQ(config::printed(node, "Title"),
            "\n" + std::string(26, '-') + " Title " + std::string(27, '-') + "\na: 1\n" +
                std::string(27, '-') + " end " + std::string(28, '-'));
}

// Regenerate: fastllm-host schema --plugin gpt --markdown > docs/configuration.md
TEST(Reference, PageIsUpToDate) {
  std::string page = config::markdown_reference(test::gpt_schema());
  EXPECT_EQ(read_file(FASTLLM_SOURCE_DIR "/docs/configuration.md"), page)
      << "regenerate: fastllm-host schema --plugin gpt --markdown > docs/configuration.md";
}

}  // namespace
}  // namespace fastllm
