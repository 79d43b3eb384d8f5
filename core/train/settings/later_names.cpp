#include "core/train/settings/later_names.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace fastllm::train {
namespace {

using Pairs =
    std::vector<std::pair<std::string, std::string>>;  // later, today ("": nothing like it)

// Each pair below a block of the later release, and a place of today.
void add_all(config::Schema& schema, const std::string& later, const std::string& today,
             const Pairs& pairs) {
  for (const auto& [new_name, old_name] : pairs)
    schema.add_later_name(later + new_name, old_name.empty() ? "" : today + old_name);
}

const Pairs kCore = {
    {"training.evaluators", "training.validation (a block for each set)"},
    {"schedule.depth_first_micro_batches", "batch.depth_first_micro_batches"},
    {"schedule.breadth_first_micro_batches", "batch.breadth_first_micro_batches"},
    {"schedule.micro_batch_splits",
     "batch.micro_sequence_length (tokens of a piece instead of the number of pieces)"},
    {"data.micro_batch_size", "batch.micro_batch_size (samples instead of tokens)"},
    {"data.maximum_document_length",
     "data.sampling.maximum_document_length (and batch.sequence_length)"},
    {"data.seed", "data.sampling.seed"},
    {"data.gpu", "data.sampling.gpu"},
    {"data.shuffle", "data.sampling.shuffle"},
    {"data.truncate_documents", "data.sampling.truncate_documents"},
    {"data.datasets.training", "data.datasets.Training"},
    {"data.datasets.validation", "data.datasets.Validation"},
    {"data.datasets.test", "data.datasets.Test"},
    {"model.distributed.compute_dtype", "model.distributed.training_dtype"},
    {"model.distributed.inference_seed_shift", "model.distributed.test_seed_shift"},
    {"model.distributed.backend", ""},
    {"model.distributed.use_cuda", ""},
    {"model.distributed.force_cpu_initialization", ""},
    {"callbacks", "training.checkpoint.callback or training.export.callback"},
    {"reference_models", ""},
    {"peft", ""},
};

const Pairs kBaseModel = {
    {"hidden_size", "transformer.hidden_size"},
    {"decoder.num_blocks", "transformer.num_layers"},
    {"decoder.block.mixer.heads", "transformer.num_attention_heads"},
    {"decoder.block.mixer.head_groups", "transformer.head_groups"},
    {"decoder.block.mixer.head_size", "transformer.kv_channels"},
    {"decoder.block.mixer.rotary", "transformer.rotary"},
    {"decoder.block.mixer.window_size", "transformer.window_size"},
    {"decoder.block.mixer.dropout", "transformer.attention_dropout"},
    {"decoder.block.mixer.softmax_scale_power", "transformer.attention_softmax_scale_power"},
    {"decoder.block.mixer.add_linear_biases", "transformer.add_linear_biases"},
    {"decoder.block.mixer.lr_scale", "transformer.attention_lr_scale"},
    {"decoder.block.mlp.add_linear_biases", "transformer.add_linear_biases"},
    {"decoder.block.mlp.intermediate_size", "transformer.ffn_hidden_size"},
    {"decoder.block.mlp.gated", "transformer.gated"},
    {"decoder.block.mlp.activation", "transformer.activation_type"},
    {"decoder.block.mlp.lr_scale", "transformer.mlp_lr_scale"},
    {"decoder.block.mlp.experts", "transformer.num_experts"},
    {"decoder.block.mlp.shared_experts", "transformer.num_shared_experts"},
    {"decoder.block.mlp.experts_per_token", "transformer.num_experts_per_token"},
    {"decoder.block.mlp.routing", "transformer.expert_routing_type"},
    {"decoder.block.mlp.auxiliary_loss_coefficient",
     "transformer.expert_auxiliary_loss_coefficient"},
    {"decoder.block.mlp.z_loss_coefficient", "transformer.expert_z_loss_coefficient"},
    {"decoder.block.mlp.jitter_eps", "transformer.moe_jitter_eps"},
    {"decoder.block.mlp.type", "transformer.num_experts (above 1: mixture of experts)"},
    {"decoder.block.mlp.router.lr_scale", "transformer.router_lr_scale"},
    {"decoder.block.lr_scale",
     "transformer.attention_lr_scale (and mlp_lr_scale, norm_lr_scale beside it)"},
    {"decoder.block.normalization", "transformer.normalization"},
    {"head.normalization", "transformer.normalization"},
    {"head.losses", "logit_z_loss"},
    {"head.lr_scale", "transformer.output_lr_scale"},
    {"embeddings.lr_scale", "transformer.embeddings_lr_scale"},
    {"embeddings.vocab_size", "vocab_size"},
    {"embeddings.num_position_embeddings", "max_position_embeddings"},
    {"embeddings.position_embeddings.enabled", "use_position_embeddings"},
    {"embeddings.vocab_parallel", "parallel_embeddings"},
    {"tied_embedding_weight", "tie_word_embeddings (true when left out)"},
};

// A layer or parameter of the later release, which has switches and scales of its own there, and
// what reaches it today.
struct Part {
  std::string path, initialization, lr_scale;
  bool has_bias = false;  // bias.enabled
};

const std::string kMlp = "transformer.mlp_lr_scale (a list)";

const std::vector<Part> kParts = {
    {"decoder.block.mixer.query_layer", "qkv", "transformer.attention_lr_scale", true},
    {"decoder.block.mixer.key_layer", "qkv", "transformer.attention_lr_scale", true},
    {"decoder.block.mixer.value_layer", "qkv", "transformer.attention_lr_scale", true},
    {"decoder.block.mixer.dense_layer", "attn_proj", "transformer.attention_lr_scale", true},
    {"decoder.block.mlp.layer_1", "mlp_1", kMlp, true},
    {"decoder.block.mlp.layer_2", "mlp_2", kMlp, true},
    {"embeddings.word_embeddings", "embed", "transformer.embeddings_lr_scale"},
    {"embeddings.position_embeddings", "embed", "transformer.embeddings_lr_scale"},
    {"head.output_weight", "embed", "transformer.output_lr_scale"},
};

void add_part(config::Schema& schema, const Part& part) {
  const std::string at = "model.base_model.", path = at + part.path;
  const std::string block = part.initialization == "embed" ? "" : "transformer.";
  const std::string today =
      fmt::format("{0}{1}init_method_std_{2} (and init_method_max_{2}, init_method_min_{2})", at,
                  block, part.initialization);
  schema.add_later_name(path + ".lr_scale", at + part.lr_scale);
  schema.add_later_name(path + ".initialization", today);
  if (!part.has_bias) return;
  schema.add_later_name(path + ".weight.initialization", today);
  schema.add_later_name(path + ".weight.lr_scale", at + part.lr_scale);
  schema.add_later_name(path + ".bias.lr_scale", at + part.lr_scale);
  schema.add_later_name(path + ".bias.enabled", at + "transformer.add_linear_biases (for all)");
}

void add_normalization(config::Schema& schema, const std::string& later) {
  const std::string today = "model.base_model.transformer.";
  for (const char* key : {".lr_scale", ".weight.lr_scale", ".bias.lr_scale"})
    schema.add_later_name(later + key, today + "norm_lr_scale");
  for (const char* key : {".weight.initialization", ".bias.initialization"})
    schema.add_later_name(later + key, today + "normalization.initialization_range");
}

}  // namespace

void add_later_names(config::Schema& schema) {
  const std::string model = "model.base_model.";
  add_all(schema, "", "", kCore);
  add_all(schema, model, model, kBaseModel);
  for (const Part& part : kParts) add_part(schema, part);
  for (const char* block : {"decoder.block.normalization", "head.normalization"})
    add_normalization(schema, model + block);
}

}  // namespace fastllm::train
