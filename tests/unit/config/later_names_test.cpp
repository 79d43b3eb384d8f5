// Names of a later release (docs/compatibility.md): each is answered with what to write today.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/config/resolve.hpp"
#include "core/config/schema_impl.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm {
namespace {

const config::Schema& schema() {
  static const config::Schema the_schema = test::gpt_schema();
  return the_schema;
}

std::string error_of(const std::vector<std::string>& overrides) {
  config::Node user = config::Node::map();
  config::apply_overrides(user, overrides);
  return config::examine(schema(), user).problems;
}

// A place below free names, as data.datasets.Training, counts when its parent is one of those.
bool is_declared(const std::string& path) {
  const config::Block& root = schema().impl().root;
  if (config::find_entry(root, path)) return true;
  const config::Entry* parent = config::find_entry(root, path.substr(0, path.rfind('.')));
  if (!parent || !parent->nested) return false;
  const auto& keys = parent->nested->keys;
  return std::find(keys.begin(), keys.end(), path.substr(path.rfind('.') + 1)) != keys.end();
}

TEST(LaterNames, PointToKeysThatExist) {
  ASSERT_GT(schema().impl().later_names.size(), 50u);
  for (const config::LaterName& name : schema().impl().later_names) {
    const std::string today = name.today.substr(0, name.today.find(' '));
    EXPECT_TRUE(today.empty() || is_declared(today)) << name.path << " -> " << name.today;
    EXPECT_FALSE(is_declared(name.path)) << name.path;
  }
}

TEST(LaterNames, OfTypesPointToTypesThatExist) {
  for (const auto& [family, content] : schema().impl().families)
    for (const auto& [type, today] : content.later_types) {
      EXPECT_FALSE(content.blocks.count(type)) << type;
      EXPECT_TRUE(today.empty() || content.blocks.count(today)) << type;
    }
}

struct Row {
  const char *later, *today;  // today "": nothing like it
};

// Every row of the table of names that changed.
TEST(LaterNames, AreEachAnswered) {
  const std::string model = "model.base_model.";
  const Row of_the_model[] = {
      {"hidden_size", "transformer.hidden_size"},
      {"decoder.num_blocks", "transformer.num_layers"},
      {"decoder.block.mixer.heads", "transformer.num_attention_heads"},
      {"decoder.block.mixer.head_groups", "transformer.head_groups"},
      {"decoder.block.mixer.head_size", "transformer.kv_channels"},
      {"decoder.block.mlp.intermediate_size", "transformer.ffn_hidden_size"},
      {"decoder.block.mlp.gated", "transformer.gated"},
      {"decoder.block.mlp.activation", "transformer.activation_type"},
      {"decoder.block.normalization", "transformer.normalization"},
      {"head.normalization", "transformer.normalization"},
      {"decoder.block.mixer.rotary", "transformer.rotary"},
      {"decoder.block.mixer.window_size", "transformer.window_size"},
      {"decoder.block.mixer.dropout", "transformer.attention_dropout"},
      {"decoder.block.mixer.softmax_scale_power", "transformer.attention_softmax_scale_power"},
      {"decoder.block.mixer.add_linear_biases", "transformer.add_linear_biases"},
      {"decoder.block.mlp.add_linear_biases", "transformer.add_linear_biases"},
      {"decoder.block.mixer.query_layer.bias.enabled", "transformer.add_linear_biases"},
      {"decoder.block.mixer.key_layer.bias.enabled", "transformer.add_linear_biases"},
      {"decoder.block.mixer.value_layer.bias.enabled", "transformer.add_linear_biases"},
      {"decoder.block.mixer.dense_layer.bias.enabled", "transformer.add_linear_biases"},
      {"decoder.block.mlp.layer_1.bias.enabled", "transformer.add_linear_biases"},
      {"decoder.block.mlp.layer_2.bias.enabled", "transformer.add_linear_biases"},
      {"decoder.block.mlp.type", "transformer.num_experts"},
      {"decoder.block.mlp.experts", "transformer.num_experts"},
      {"decoder.block.mlp.shared_experts", "transformer.num_shared_experts"},
      {"decoder.block.mlp.experts_per_token", "transformer.num_experts_per_token"},
      {"decoder.block.mlp.router.lr_scale", "transformer.router_lr_scale"},
      {"decoder.block.mlp.auxiliary_loss_coefficient",
       "transformer.expert_auxiliary_loss_coefficient"},
      {"decoder.block.mlp.z_loss_coefficient", "transformer.expert_z_loss_coefficient"},
      {"decoder.block.mlp.jitter_eps", "transformer.moe_jitter_eps"},
      {"decoder.block.mlp.routing", "transformer.expert_routing_type"},
      {"decoder.block.lr_scale", "transformer.attention_lr_scale"},
      {"decoder.block.mixer.lr_scale", "transformer.attention_lr_scale"},
      {"decoder.block.mixer.query_layer.lr_scale", "transformer.attention_lr_scale"},
      {"decoder.block.mixer.dense_layer.weight.lr_scale", "transformer.attention_lr_scale"},
      {"decoder.block.mlp.lr_scale", "transformer.mlp_lr_scale"},
      {"decoder.block.mlp.layer_1.lr_scale", "transformer.mlp_lr_scale"},
      {"decoder.block.mlp.layer_2.bias.lr_scale", "transformer.mlp_lr_scale"},
      {"decoder.block.normalization.lr_scale", "transformer.norm_lr_scale"},
      {"head.normalization.lr_scale", "transformer.norm_lr_scale"},
      {"head.normalization.weight.lr_scale", "transformer.norm_lr_scale"},
      {"head.lr_scale", "transformer.output_lr_scale"},
      {"head.output_weight.lr_scale", "transformer.output_lr_scale"},
      {"embeddings.lr_scale", "transformer.embeddings_lr_scale"},
      {"embeddings.word_embeddings.lr_scale", "transformer.embeddings_lr_scale"},
      {"decoder.block.mixer.query_layer.weight.initialization", "transformer.init_method_std_qkv"},
      {"decoder.block.mixer.key_layer.weight.initialization", "transformer.init_method_std_qkv"},
      {"decoder.block.mixer.value_layer.weight.initialization", "transformer.init_method_std_qkv"},
      {"decoder.block.mixer.dense_layer.weight.initialization",
       "transformer.init_method_std_attn_proj"},
      {"decoder.block.mlp.layer_1.weight.initialization", "transformer.init_method_std_mlp_1"},
      {"decoder.block.mlp.layer_2.weight.initialization", "transformer.init_method_std_mlp_2"},
      {"decoder.block.normalization.weight.initialization",
       "transformer.normalization.initialization_range"},
      {"embeddings.word_embeddings.initialization", "init_method_std_embed"},
      {"head.output_weight.initialization", "init_method_std_embed"},
      {"embeddings.vocab_size", "vocab_size"},
      {"embeddings.num_position_embeddings", "max_position_embeddings"},
      {"embeddings.position_embeddings.enabled", "use_position_embeddings"},
      {"embeddings.vocab_parallel", "parallel_embeddings"},
      {"tied_embedding_weight", "tie_word_embeddings"},
      {"head.losses", "logit_z_loss"},
  };
  const Row of_the_core[] = {
      {"model.distributed.compute_dtype", "model.distributed.training_dtype"},
      {"model.distributed.inference_seed_shift", "model.distributed.test_seed_shift"},
      {"model.distributed.backend", ""},
      {"model.distributed.use_cuda", ""},
      {"model.distributed.force_cpu_initialization", ""},
      {"data.micro_batch_size", "batch.micro_batch_size"},
      {"schedule.depth_first_micro_batches", "batch.depth_first_micro_batches"},
      {"schedule.breadth_first_micro_batches", "batch.breadth_first_micro_batches"},
      {"schedule.micro_batch_splits", "batch.micro_sequence_length"},
      {"data.maximum_document_length", "data.sampling.maximum_document_length"},
      {"training.evaluators", "training.validation"},
      {"callbacks", "training.checkpoint.callback"},
      {"data.datasets.training", "data.datasets.Training"},
      {"data.datasets.validation", "data.datasets.Validation"},
      {"data.datasets.test", "data.datasets.Test"},
      {"data.seed", "data.sampling.seed"},
      {"data.gpu", "data.sampling.gpu"},
      {"data.shuffle", "data.sampling.shuffle"},
      {"data.truncate_documents", "data.sampling.truncate_documents"},
      {"reference_models", ""},
      {"peft", ""},
  };
  const auto expect_answer = [](const std::string& later, const std::string& today) {
    const std::string start = "command line: " + later + ": name of a later release; " +
                              (today.empty() ? "nothing like it today" : "today: " + today);
    const std::string found = error_of({later + "=1"});
    EXPECT_TRUE(found == start || found.starts_with(start + " ")) << found << "\nfor " << start;
  };
  for (const Row& row : of_the_model) expect_answer(model + row.later, model + row.today);
  for (const Row& row : of_the_core) expect_answer(row.later, row.today);
}

TEST(LaterNames, ABlockIsAnsweredForWhatItsKeysAreNot) {
  const std::string norm = "model.base_model.decoder.block.normalization";
  const std::string scale = "command line: " + norm +
                            ".lr_scale: name of a later release; today: "
                            "model.base_model.transformer.norm_lr_scale";
  EXPECT_EQ(error_of({norm + "={lr_scale: 0}"}), scale);
  EXPECT_EQ(error_of({norm + "={lr_scale: 0, epsilon: 1e-6}"}),
            "command line: " + norm +
                ": name of a later release; today: model.base_model.transformer.normalization\n" +
                scale);
}

TEST(LaterNames, OfADatasetTypeIsAnswered) {
  EXPECT_EQ(error_of({"data.datasets.Training={type: streaming}"}),
            "command line: data.datasets.Training.type: expected one of memmap, concatenated, "
            "slice, file, concatenated_memmap, random, sampled, blended, fim, legacy, test_slow, "
            "found streaming; name of a later release; nothing like it today");
}

}  // namespace
}  // namespace fastllm
