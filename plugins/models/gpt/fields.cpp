// The configuration keys: name, type, default, bounds, help. What they mean together is checked in
// config.cpp. A default of "null" with a computed value is written back there, so that the resolved
// configuration says it.
#include "fields.hpp"

#include <limits>

namespace fastllm::gpt {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::quiet_NaN();
constexpr uint32_t kNullable = FASTLLM_FIELD_NULLABLE;
constexpr uint32_t kArchitecture = FASTLLM_FIELD_ARCHITECTURE;
constexpr uint32_t kExpert = FASTLLM_FIELD_EXPERT;
constexpr uint32_t kCoreArchitecture = FASTLLM_FIELD_CORE | FASTLLM_FIELD_ARCHITECTURE;

using Names = std::vector<std::string>;

sdk::Field base(const std::string& path, int32_t type, const std::string& fallback, uint32_t flags,
                double minimum, const std::string& help, Names aliases = {}) {
  sdk::Field field;
  field.path = path;
  field.type = type;
  field.fallback = fallback;
  field.flags = flags;
  field.minimum = minimum;
  field.help = help;
  field.aliases = std::move(aliases);
  return field;
}
sdk::Field integer(const std::string& path, const std::string& fallback, uint32_t flags,
                   double minimum, const std::string& help) {
  return base(path, FASTLLM_I64, fallback, flags, minimum, help);
}
sdk::Field real(const std::string& path, const std::string& fallback, uint32_t flags,
                double minimum, const std::string& help, Names aliases = {}) {
  return base(path, FASTLLM_F64, fallback, flags, minimum, help, std::move(aliases));
}
sdk::Field boolean(const std::string& path, const std::string& fallback, uint32_t flags,
                   const std::string& help, Names aliases = {}) {
  return base(path, FASTLLM_BOOL, fallback, flags, kUnbounded, help, std::move(aliases));
}
sdk::Field choice(const std::string& path, const std::string& fallback, uint32_t flags,
                  Names choices, const std::string& help, Names aliases = {}) {
  auto field = base(path, FASTLLM_STR, fallback, flags, kUnbounded, help, std::move(aliases));
  field.choices = std::move(choices);
  return field;
}

void declare_normalization(const sdk::Sink& sink) {
  const std::string at = "transformer.normalization.";
  sink.field(choice(at + "type", "layer_norm", kCoreArchitecture, {"layer_norm", "rms_norm"},
                    "Kind of normalization; layer_norm subtracts the mean and has a bias.",
                    {"transformer.normalization_type"}));
  sink.field(real(at + "epsilon", "1.0e-05", kArchitecture, 0,
                  "Added to the variance before the root; above 0.",
                  {"transformer.layer_norm_eps"}));
  sink.field(boolean(at + "zero_centered", "false", kArchitecture,
                     "The effective weight is 1 + the stored one.",
                     {"transformer.zero_centered_normalization"}));
  sink.field(choice(at + "implementation", "auto", 0, {"auto", "torch", "fused", "fast", "triton"},
                    "No effect here: there is one implementation.",
                    {"transformer.normalization_implementation", "transformer.layer_norm_impl"}));
  sink.field(real(at + "initialization_range", "0.0", kExpert, 0,
                  "Half width of a uniform spread around the initial weight and bias (test aid).",
                  {"transformer.layer_norm_init_range"}));
}

void declare_rotary(const sdk::Sink& sink) {
  const std::string at = "transformer.rotary.";
  sink.field(choice(at + "type", "none", kArchitecture,
                    {"none", "default", "llama3", "yarn", "linear"},
                    "Rotary position embedding of queries and keys; linear (ours) divides all "
                    "frequencies by scale_factor.",
                    {"transformer.use_rotary_embeddings"}));
  sink.field(
      real(at + "theta", "10000.0", kArchitecture, kUnbounded, "Base of the rotary frequencies."));
  sink.field(boolean(at + "triton", "true", kArchitecture | kExpert,
                     "Layout of a head: true, a pair is elements i and i + kv_channels / 2; false, "
                     "elements 2i and 2i + 1.",
                     {"transformer.triton_rotary"}));
  sink.field(real(at + "scale_factor", "8.0", kArchitecture, kUnbounded,
                  "Context extension factor of llama3, yarn and linear."));
  sink.field(real(at + "low_frequency_factor", "1.0", kArchitecture, kUnbounded,
                  "Lower end of the llama3 blend, in turns within the original context."));
  sink.field(real(at + "high_frequency_factor", "4.0", kArchitecture, kUnbounded,
                  "Upper end of the llama3 blend, in turns within the original context."));
  sink.field(integer(at + "original_context_length", "8192", kArchitecture, kUnbounded,
                     "Context length in tokens before extension, of llama3 and yarn."));
  sink.field(real(at + "attention_factor", "null", kArchitecture | kNullable, kUnbounded,
                  "Scale of yarn's cosines and sines; null: 0.1 ln(scale_factor) + 1."));
  sink.field(real(at + "beta_fast", "32.0", kArchitecture, kUnbounded,
                  "Upper end of the yarn blend, in rotations."));
  sink.field(real(at + "beta_slow", "1.0", kArchitecture, kUnbounded,
                  "Lower end of the yarn blend, in rotations."));
}

// deviation, maximum and minimum of one group of matrices
void declare_init(const sdk::Sink& sink, const std::string& group, const std::string& what,
                  const std::string& deviation, const std::string& clamp) {
  const std::string at = "transformer.init_method_";
  const std::string suffix = group.empty() ? "" : "_" + group;
  sink.field(real(at + "std" + suffix, "null", kNullable, 0,
                  "Initial deviation of " + what + "; null: " + deviation + "."));
  sink.field(real(at + "max" + suffix, "null", kNullable, kUnbounded,
                  "Initial values are clamped to at most this" + clamp));
  sink.field(real(at + "min" + suffix, "null", kNullable, kUnbounded,
                  "Initial values are clamped to at least this" + clamp));
}

void declare_transformer(const sdk::Sink& sink) {
  const std::string at = "transformer.";
  declare_normalization(sink);
  sink.field(
      integer(at + "num_layers", "12", kCoreArchitecture, 0, "Number of transformer blocks."));
  sink.field(
      integer(at + "hidden_size", "1024", kCoreArchitecture, 1, "Width of the residual stream."));
  sink.field(integer(at + "num_attention_heads", "8", kCoreArchitecture, 1,
                     "Query heads; a multiple of head_groups."));
  sink.field(integer(
      at + "head_groups", "1", kCoreArchitecture, 1,
      "Key and value heads: 1 is multi-query, num_attention_heads is multi-head attention."));
  sink.field(choice(at + "add_linear_biases", "true", kCoreArchitecture,
                    {"true", "false", "everywhere", "nowhere", "only_attn_qkv"},
                    "Biases of the linear layers; only_attn_qkv: query, key and value alone."));
  sink.field(integer(at + "ffn_hidden_size", "null", kCoreArchitecture | kNullable, 1,
                     "Inner width of the MLP; null: 4 hidden_size."));
  sink.field(integer(at + "kv_channels", "null", kCoreArchitecture | kNullable, 1,
                     "Width of a head; null: hidden_size / num_attention_heads."));
  sink.field(boolean(at + "query_key_norm", "false", kArchitecture | kExpert,
                     "RMS normalization of every head of queries and keys before the rotary "
                     "embedding, one weight for all heads each (ours; as in Qwen3)."));
  declare_rotary(sink);
  sink.field(boolean(at + "gated", "false", kArchitecture,
                     "The MLP multiplies the activation by a second projection."));
  sink.field(
      choice(at + "activation_type", "null", kCoreArchitecture | kNullable,
             {"gelu", "silu", "relu", "squared_relu"},
             "Activation of the MLP; gelu is the tanh form; null: silu if gated, otherwise gelu."));
  sink.field(integer(at + "num_experts", "1", kArchitecture, 1,
                     "Experts of each MLP; 1: no mixture of experts."));
  sink.field(
      integer(at + "num_shared_experts", "0", kArchitecture, 0, "Experts that see every token."));
  sink.field(integer(at + "num_experts_per_token", "1", kArchitecture, 1,
                     "Routed experts a token is sent to."));
  sink.field(choice(at + "expert_routing_type", "aux_loss", kArchitecture, {"aux_loss", "sinkhorn"},
                    "How tokens are balanced over experts."));
  declare_init(sink, "", "weight matrices", "hidden_size^-0.5", "; null: no clamp.");
  declare_init(sink, "qkv", "query, key and value weights", "init_method_std",
               "; null: as without the suffix.");
  declare_init(sink, "attn_proj", "the attention output weight",
               "init_method_std / sqrt(2 num_layers)", "; null: as without the suffix.");
  declare_init(sink, "mlp_1", "the first MLP weight", "init_method_std",
               "; null: as without the suffix.");
  declare_init(sink, "mlp_2", "the second MLP weight", "init_method_std / sqrt(2 num_layers)",
               "; null: as without the suffix.");
  sink.field(real(at + "attention_dropout", "0.0", 0, 0,
                  "Share of attention weights dropped in training; below 1."));
  sink.field(
      real(at + "hidden_dropout", "0.0", 0, 0, "Share of hidden values dropped in training."));
  sink.field(boolean(at + "full_precision_residual", "false", 0,
                     "Keep the residual stream in the optimization type."));
  sink.field(boolean(at + "use_flash_attention", "true", 0,
                     "No effect here: results do not depend on it."));
  sink.field(integer(at + "window_size", "null", kNullable, 1,
                     "Keys a query sees, its own included; null: all before it."));
  sink.field(integer(at + "max_window_layers", "null", kNullable, 0,
                     "Blocks numbered below this, from 1, have no window; null: all have it."));
  sink.field(choice(at + "mlp_recompute_level", "none", 0,
                    {"none", "activation", "activation_and_input", "full"},
                    "What of the MLP is computed again in backward to save memory."));
  sink.field(integer(at + "debug_transformer", "0", kExpert, 0,
                     "Log of tensors inside blocks: 1 shapes, 2 mean and deviation too, from 3 on "
                     "also 2^(level - 3) values."));
  sink.field(boolean(at + "debug_transformer_memory", "false", kExpert,
                     "Log the process's resident memory inside blocks."));
  sink.field(boolean(at + "random_bias_init", "false", kExpert,
                     "Initialize linear biases as their weight instead of 0 (test aid)."));
  sink.field(real(at + "expert_auxiliary_loss_coefficient", "0.01", 0, 0,
                  "Weight of the load balancing loss."));
  sink.field(real(at + "expert_z_loss_coefficient", "0.0", 0, 0, "Weight of the router's z-loss."));
  sink.field(real(
      at + "moe_jitter_eps", "0.0", 0, 0,
      "In training the router's logits are multiplied by numbers between 1 - this and 1 + this."));
  sink.field(base(at + "mlp_lr_scale", FASTLLM_F64_LIST, "[null]", kNullable, 0,
                  "Learning-rate scale of both MLP layers, one for all or one per expert; null: "
                  "the optimizer's; 0 freezes."));
  sink.field(real(at + "router_lr_scale", "null", kNullable, 0,
                  "Learning-rate scale of the router; null: the optimizer's; 0 freezes."));
  sink.field(
      real(at + "attention_lr_scale", "null", kNullable, 0,
           "Learning-rate scale of query, key_value and dense; null: the optimizer's; 0 freezes."));
  sink.field(real(
      at + "embeddings_lr_scale", "null", kNullable | kExpert, 0,
      "Learning-rate scale of word and position embeddings; null: the optimizer's; 0 freezes."));
  sink.field(
      real(at + "output_lr_scale", "null", kNullable | kExpert, 0,
           "Learning-rate scale of untied output weights; null: the optimizer's; 0 freezes."));
  sink.field(
      real(at + "norm_lr_scale", "null", kNullable | kExpert, 0,
           "Learning-rate scale of all normalization layers; null: the optimizer's; 0 freezes."));
  sink.field(real(at + "attention_softmax_scale_power", "0.5", kNullable, 0,
                  "Attention scores are multiplied by kv_channels^-this; null: 0.5."));
  sink.field(boolean(at + "dropless_moe", "true", kExpert,
                     "No effect here: there is one implementation of experts."));
  sink.field(boolean(at + "dropless_dynamic_shape", "false", kExpert,
                     "No effect here: there is one implementation of experts."));
}

}  // namespace

void declare_fields(const sdk::Sink& sink) {
  declare_transformer(sink);
  sink.field(
      integer("max_position_embeddings", "2048", kArchitecture, 1,
              "Rows of the absolute position table, in tokens: the longest sequence it allows."));
  sink.field(integer("vocab_size", "49152", kCoreArchitecture, 1,
                     "Token ids; rows of the embedding and of the output."));
  sink.field(boolean("use_position_embeddings", "null", kArchitecture | kNullable,
                     "Add learned absolute positions; null: if there is no rotary embedding."));
  sink.field(boolean("tie_word_embeddings", "true", kCoreArchitecture,
                     "The output uses the word embedding's weight."));
  sink.field(real(
      "init_method_std_embed", "null", kNullable, 0,
      "Initial deviation of embeddings and output weights; null: transformer.init_method_std."));
  sink.field(real("init_method_max_embed", "null", kNullable, kUnbounded,
                  "Clamp of the same; null: transformer.init_method_max."));
  sink.field(real("init_method_min_embed", "null", kNullable, kUnbounded,
                  "Clamp of the same; null: transformer.init_method_min."));
  sink.field(choice("cross_entropy_impl", "auto", 0, {"auto", "torch", "fused", "triton"},
                    "No effect here: there is one implementation of the loss."));
  sink.field(integer("cross_entropy_splits", "null", kNullable, 1,
                     "Pieces the tokens are cut into for logits and loss; null: pieces that fit a "
                     "processor's cache."));
  sink.field(
      boolean("parallel_embeddings", "true", 0, "Divide the vocabulary over the tensor group."));
  sink.field(
      boolean("sequence_first", "null", kNullable | kExpert,
              "No effect here: results do not depend on the order of dimensions in memory."));
  sink.field(real("logit_z_loss", "0.0", 0, 0,
                  "Weight of the squared log-sum of the exponentials of the logits in what is "
                  "minimised; the log shows it without the weight."));
  sink.field(real("logits_scale_factor", "1.0", 0, 0, "Multiplies the logits."));
  sink.field(integer("prediction_heads", "1", kArchitecture | kExpert, 1,
                     "Tokens predicted at each position: every further one adds a block and a "
                     "head (multi-token prediction; a later release's field)."));
  sink.field(
      base("prediction_loss_coefficient", FASTLLM_F64_LIST, "null", kNullable | kExpert, 0,
           "Weight of each prediction head's loss; null: 1 each (a later release's field)."));
  sink.field(boolean("use_megatron_initialization", "false", kExpert,
                     "Seed shifts of another system (test aid).", {"match_megatron"}));
}

}  // namespace fastllm::gpt
