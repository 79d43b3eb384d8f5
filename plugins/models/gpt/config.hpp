// One configured architecture as plain values: read once, checked together, everything computed
// that had no value. Lengths are in elements. A learning-rate scale of NaN means the optimizer's
// default; 0 freezes.
#pragma once

#include <fastllm/plugin.hpp>

#include <cstdint>
#include <limits>
#include <vector>

namespace fastllm::gpt {

enum class NormKind { kLayer, kRms };
enum class RotaryKind { kNone, kDefault, kLinear, kLlama3, kYarn };
enum class Activation { kGelu, kSilu, kRelu, kSquaredRelu };
// What backward makes again. The activation's output is never kept: its backward makes it on the
// way, so the first two are the same here.
enum class MlpRecompute { kNone, kActivation, kActivationAndInput, kFull };

// kTopK: the largest logits, balanced by a loss. kSinkhorn: the largest of a balanced matrix.
enum class RoutingKind { kTopK, kSinkhorn };

// Normal initial values, clamped; NaN: no clamp.
struct Init {
  double deviation = 0;
  double maximum = std::numeric_limits<double>::quiet_NaN();
  double minimum = std::numeric_limits<double>::quiet_NaN();
};

struct NormConfig {
  NormKind kind = NormKind::kLayer;
  double epsilon = 1e-5;
  bool zero_centered = false;
  double initialization_range = 0;
};

struct RotaryConfig {
  RotaryKind kind = RotaryKind::kNone;
  double theta = 10000;
  bool interleaved = false;  // a pair is elements 2i, 2i + 1 of a head; otherwise i, i + half
  double scale_factor = 8;   // linear, llama3, yarn: how much longer the context became
  double original_context_length = 8192;                       // llama3, yarn: in tokens
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1, attention_factor = 1;  // yarn
};

struct GptConfig {
  NormConfig norm;
  RotaryConfig rotary;
  int64_t layers = 0, hidden = 0, heads = 0, groups = 0, head_width = 0, ffn = 0;
  bool bias_qkv = true, bias_dense = true, bias_mlp = true;
  bool gated = false;
  Activation activation = Activation::kGelu;
  double softmax_scale = 1;        // kv_channels^-attention_softmax_scale_power
  int64_t window = 0;              // keys a query sees, its own included; 0: all before it
  int64_t first_window_block = 0;  // blocks below this have no window; counted from 1
  double attention_dropout = 0;    // probability, in training
  bool query_key_norm = false;     // RMS norm of every head of queries and keys, before rotary
  MlpRecompute mlp_recompute = MlpRecompute::kNone;
  double hidden_dropout = 0;  // probability, in training

  int64_t experts = 1;  // of each MLP; the last shared_experts see every token
  int64_t shared_experts = 0, experts_per_token = 1;
  RoutingKind routing = RoutingKind::kTopK;
  double router_balance_coefficient = 0.01, router_z_coefficient = 0;
  double router_jitter = 0;  // half width of the factors of the router's logits, in training
  int64_t routed_experts() const { return experts - shared_experts; }

  int64_t debug_level = 0;  // of the log of tensors inside blocks (layers/block_log.hpp)
  bool debug_memory = false;

  int64_t vocabulary = 0, positions = 0;
  bool absolute_positions = true, tied = true, parallel_embeddings = true;
  double logits_scale = 1;
  double z_loss = 0;                 // weight of the z loss in what is minimised; 0: none
  int64_t cross_entropy_splits = 0;  // pieces of the tokens in the head; 0: automatic

  int64_t prediction_heads = 1;
  std::vector<double> prediction_coefficients;  // by head; empty: 1 each
  double prediction_coefficient(int64_t distance) const {
    return prediction_coefficients.empty() ? 1 : prediction_coefficients[size_t(distance - 1)];
  }

  Init init_all, init_qkv, init_attention_output, init_mlp_1, init_mlp_2, init_embedding;
  bool random_bias = false;
  bool full_precision_residual = false;  // hidden states between layers are float32
  std::vector<double> mlp_scales{std::numeric_limits<double>::quiet_NaN()};  // 1, or by expert
  double router_scale, attention_scale, embeddings_scale, output_scale, norm_scale;
  double mlp_scale() const { return mlp_scales[0]; }  // without experts

  int64_t query_width() const { return heads * head_width; }
  int64_t key_value_width() const { return 2 * groups * head_width; }  // keys, then values
  // The window of a block, counted from 1; 0: none.
  int64_t window_of(int64_t block) const { return block < first_window_block ? 0 : window; }
};

// Throws FASTLLM_INVALID with every problem found, one "path: sentence" a line. Writes computed
// values back into the node.
GptConfig read_config(sdk::Config node);

}  // namespace fastllm::gpt
