// From the resolved node to GptConfig: dynamic defaults, checks across keys, and what this version
// does not compute yet. Problems are collected so that a user sees all of them at once; a key that
// would change results is never ignored.
#include "config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

namespace fastllm::gpt {
namespace {

// Any product of two sizes, times 2, then fits in 63 bits.
constexpr int64_t kLargestSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostLayers = 65536;
constexpr int64_t kMostExperts = 65536;
constexpr int64_t kMostHeads = 64;  // each needs labels of its own from the host
// Of a matrix: 4 TiB in float32. All matrices of the most layers, and a few copies of each, then
// have byte counts in 63 bits.
constexpr int64_t kMostElements = int64_t{1} << 40;
// Where the host keeps these keys: notes are read beside those of other blocks.
const std::string kBlock = "model.base_model.";
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

class Reader {
 public:
  explicit Reader(sdk::Config node) : node_(node) {}

  GptConfig read() {
    read_sizes();
    read_norm();
    read_attention();
    read_rotary();
    read_mlp();
    read_experts();
    read_embeddings();
    read_predictions();
    read_init();
    read_scales();
    refuse_megatron_initialization();
    if (problems_.empty()) check_matrices();  // each size is in bounds by now
    note_keys_without_effect();
    if (!problems_.empty()) sdk::fail(FASTLLM_INVALID, problems_);
    return config_;
  }

 private:
  void problem(const std::string& path, const std::string& sentence) {
    if (!problems_.empty()) problems_ += '\n';
    problems_ += path + ": " + sentence;
    wrong_.insert(path);
  }
  // A rule between keys is judged only where each of them is right by itself: a value in place of a
  // wrong one would break it without the user's doing.
  bool right(std::initializer_list<const char*> paths) const {
    return std::none_of(paths.begin(), paths.end(),
                        [&](const char* path) { return wrong_.contains(path); });
  }

  int64_t size(const std::string& path) {
    const auto value = node_.get<int64_t>(path);
    if (value > kLargestSize) {
      problem(path, "expected at most " + std::to_string(kLargestSize) + ", found " +
                        std::to_string(value));
      return 1;
    }
    return value;
  }
  // A size with a computed default, which is written back; formula: what it is made of.
  int64_t size_or(const std::string& path, int64_t computed, const std::string& formula) {
    if (node_.size(path) >= 0) return size(path);
    if (computed > kLargestSize) {
      problem(path, "expected at most " + std::to_string(kLargestSize) + ", found " +
                        std::to_string(computed) + " = " + formula +
                        ", since no value is given; give a smaller one");
      return 1;
    }
    node_.set(path, computed);
    return computed;
  }
  // A dimension as a message names it, and its elements.
  struct Side {
    std::string name;
    int64_t size;
  };
  // Blames the sizes, not the parameter that is made of them.
  void check_matrix(const std::string& path, const Side& rows, const Side& columns) {
    if (rows.size <= kMostElements / columns.size) return;
    problem(path, "expected " + rows.name + " times " + columns.name + " to be at most " +
                      std::to_string(kMostElements) + " elements of a matrix, found " +
                      std::to_string(rows.size) + " times " + std::to_string(columns.size) +
                      "; make one of them smaller");
  }
  void check_matrices() {
    const Side hidden{"transformer.hidden_size", config_.hidden};
    check_matrix("vocab_size", {"it", config_.vocabulary}, hidden);
    if (config_.absolute_positions) {
      check_matrix("max_position_embeddings", {"it", config_.positions}, hidden);
    }
    if (config_.layers == 0) return;
    check_matrix("transformer.num_attention_heads",
                 {"it times transformer.kv_channels", config_.query_width()}, hidden);
    check_matrix("transformer.head_groups",
                 {"twice it times transformer.kv_channels", config_.key_value_width()}, hidden);
    const int64_t halves = config_.gated ? 2 : 1;
    if (config_.experts == 1) {
      check_matrix("transformer.ffn_hidden_size",
                   {config_.gated ? "twice it (gated)" : "it", halves * config_.ffn}, hidden);
    } else {
      check_matrix("transformer.num_experts",
                   {config_.gated ? "twice it (gated) times transformer.ffn_hidden_size"
                                  : "it times transformer.ffn_hidden_size",
                    config_.experts * halves * config_.ffn},
                   hidden);
    }
  }
  double real_or(const std::string& path, double computed) {
    if (const auto value = node_.optional<double>(path)) return *value;
    if (!std::isnan(computed)) node_.set(path, computed);
    return computed;
  }

  void read_sizes() {
    config_.layers = node_.get<int64_t>("transformer.num_layers");
    if (config_.layers > kMostLayers) {
      problem("transformer.num_layers", "expected at most " + std::to_string(kMostLayers) +
                                            ", found " + std::to_string(config_.layers));
      config_.layers = 1;
    }
    config_.hidden = size("transformer.hidden_size");
    config_.heads = size("transformer.num_attention_heads");
    config_.groups = size("transformer.head_groups");
    const char *hidden = "transformer.hidden_size", *heads = "transformer.num_attention_heads",
               *groups = "transformer.head_groups", *width = "transformer.kv_channels";
    if (right({heads, groups}) && config_.heads % config_.groups != 0) {
      problem("transformer.head_groups", "expected a divisor of num_attention_heads (" +
                                             std::to_string(config_.heads) + "), found " +
                                             std::to_string(config_.groups));
    }
    if (node_.size(width) < 0 && !right({hidden, heads})) {
      wrong_.insert(width);  // follows from the two
      config_.head_width = 1;
    } else if (node_.size(width) < 0 && config_.hidden % config_.heads != 0) {
      problem(width, "expected hidden_size (" + std::to_string(config_.hidden) +
                         ") to be a multiple of num_attention_heads (" +
                         std::to_string(config_.heads) + ") when no value is given; give one");
      config_.head_width = 1;
    } else {
      config_.head_width =
          size_or(width, config_.hidden / config_.heads, "hidden_size / num_attention_heads");
    }
    if (right({heads, width}) && config_.heads * config_.head_width > kLargestSize) {
      problem("transformer.num_attention_heads",
              "expected num_attention_heads times kv_channels to be at most " +
                  std::to_string(kLargestSize) + ", found " + std::to_string(config_.heads) +
                  " times " + std::to_string(config_.head_width));
    }
    if (right({groups, width}) && 2 * config_.groups * config_.head_width > kLargestSize) {
      problem("transformer.head_groups",
              "expected twice head_groups times kv_channels to be at most " +
                  std::to_string(kLargestSize) + ", found twice " + std::to_string(config_.groups) +
                  " times " + std::to_string(config_.head_width));
    }
    const double power = real_or("transformer.attention_softmax_scale_power", 0.5);
    config_.softmax_scale = std::pow(double(config_.head_width), -power);

    const auto biases = node_.get<std::string>("transformer.add_linear_biases");
    const bool everywhere = biases == "true" || biases == "everywhere";
    config_.bias_qkv = everywhere || biases == "only_attn_qkv";
    config_.bias_dense = config_.bias_mlp = everywhere;
  }

  void read_norm() {
    auto& norm = config_.norm;
    norm.kind = node_.get<std::string>("transformer.normalization.type") == "rms_norm"
                    ? NormKind::kRms
                    : NormKind::kLayer;
    norm.epsilon = node_.get<double>("transformer.normalization.epsilon");
    if (!(norm.epsilon > 0)) {
      problem("transformer.normalization.epsilon",
              "expected a number above 0, found " + number(norm.epsilon));
    }
    norm.zero_centered = node_.get<bool>("transformer.normalization.zero_centered");
    norm.initialization_range = node_.get<double>("transformer.normalization.initialization_range");
  }

  void read_attention() {
    const std::string window = "transformer.window_size", first = "transformer.max_window_layers";
    if (node_.size(window) >= 0) config_.window = size(window);
    if (node_.size(first) >= 0) config_.first_window_block = size(first);
    config_.attention_dropout = probability("transformer.attention_dropout");
    config_.query_key_norm = node_.get<bool>("transformer.query_key_norm");
  }

  // The share of values that a dropout sets to 0.
  double probability(const std::string& path) {
    const auto value = node_.get<double>(path);
    if (!(value < 1))
      problem(path, "expected a share below 1, found " + number(value) + "; 0 drops nothing");
    return value;
  }

  // A number of the rotary embedding that must be above a bound.
  double above(const std::string& key, double bound) {
    const std::string path = "transformer.rotary." + key;
    const auto value = node_.get<double>(path);
    if (!(value > bound && std::isfinite(value)))
      problem(path, "expected a number above " + number(bound) + ", found " + number(value));
    return value;
  }

  void read_rotary() {
    const std::map<std::string, RotaryKind> kinds = {{"none", RotaryKind::kNone},
                                                     {"default", RotaryKind::kDefault},
                                                     {"linear", RotaryKind::kLinear},
                                                     {"llama3", RotaryKind::kLlama3},
                                                     {"yarn", RotaryKind::kYarn}};
    auto& rotary = config_.rotary;
    rotary.kind = kinds.at(node_.get<std::string>("transformer.rotary.type"));
    if (rotary.kind == RotaryKind::kNone) return;
    rotary.interleaved = !node_.get<bool>("transformer.rotary.triton");
    // With a base of 1 all pairs turn alike, and yarn, which divides by its logarithm, has no
    // meaning.
    rotary.theta = above("theta", rotary.kind == RotaryKind::kYarn ? 1 : 0);
    if (right({"transformer.kv_channels"}) && config_.head_width % 2 != 0) {
      problem("transformer.kv_channels",
              "expected an even number, since rotary embeddings turn pairs, found " +
                  std::to_string(config_.head_width));
    }
    if (rotary.kind == RotaryKind::kDefault) return;
    rotary.scale_factor = above("scale_factor", 0);
    if (rotary.kind == RotaryKind::kLinear) return;
    const std::string original = "transformer.rotary.original_context_length";
    const auto length = node_.get<int64_t>(original);
    if (length < 1) problem(original, "expected at least 1 token, found " + std::to_string(length));
    rotary.original_context_length = double(length);
    if (rotary.kind == RotaryKind::kLlama3)
      read_llama3_rotary();
    else
      read_yarn_rotary();
  }
  void read_llama3_rotary() {
    auto& rotary = config_.rotary;
    rotary.low_frequency_factor = above("low_frequency_factor", 0);
    rotary.high_frequency_factor = above("high_frequency_factor", 0);
    if (right({"transformer.rotary.low_frequency_factor",
               "transformer.rotary.high_frequency_factor"}) &&
        rotary.low_frequency_factor >= rotary.high_frequency_factor) {
      problem("transformer.rotary.low_frequency_factor",
              "expected less than high_frequency_factor (" + number(rotary.high_frequency_factor) +
                  "), found " + number(rotary.low_frequency_factor));
    }
  }
  void read_yarn_rotary() {
    auto& rotary = config_.rotary;
    rotary.beta_fast = above("beta_fast", 0);
    rotary.beta_slow = above("beta_slow", 0);
    if (right({"transformer.rotary.beta_fast", "transformer.rotary.beta_slow"}) &&
        rotary.beta_slow > rotary.beta_fast) {
      problem("transformer.rotary.beta_slow", "expected at most beta_fast (" +
                                                  number(rotary.beta_fast) + "), found " +
                                                  number(rotary.beta_slow));
    }
    rotary.attention_factor = node_.optional<double>("transformer.rotary.attention_factor")
                                  .value_or(0.1 * std::log(rotary.scale_factor) + 1);
    const bool given = node_.optional<double>("transformer.rotary.attention_factor").has_value();
    if ((given || right({"transformer.rotary.scale_factor"})) && !(rotary.attention_factor > 0)) {
      problem("transformer.rotary.attention_factor",
              "expected a number above 0, found " + number(rotary.attention_factor) +
                  (given ? "" : " = 0.1 ln(scale_factor) + 1, since no value is given; give one"));
    }
  }

  void read_mlp() {
    config_.gated = node_.get<bool>("transformer.gated");
    if (node_.size("transformer.ffn_hidden_size") >= 0 || right({"transformer.hidden_size"}))
      config_.ffn = size_or("transformer.ffn_hidden_size", 4 * config_.hidden, "4 hidden_size");
    auto activation = node_.optional<std::string>("transformer.activation_type");
    if (!activation) {
      activation = config_.gated ? "silu" : "gelu";
      node_.set("transformer.activation_type", *activation);
    }
    const std::map<std::string, Activation> activations = {
        {"gelu", Activation::kGelu},
        {"silu", Activation::kSilu},
        {"relu", Activation::kRelu},
        {"squared_relu", Activation::kSquaredRelu}};
    config_.activation = activations.at(*activation);
    const std::map<std::string, MlpRecompute> levels = {
        {"none", MlpRecompute::kNone},
        {"activation", MlpRecompute::kActivation},
        {"activation_and_input", MlpRecompute::kActivationAndInput},
        {"full", MlpRecompute::kFull}};
    config_.mlp_recompute = levels.at(node_.get<std::string>("transformer.mlp_recompute_level"));
    config_.hidden_dropout = probability("transformer.hidden_dropout");
    config_.debug_level = node_.get<int64_t>("transformer.debug_transformer");
    config_.debug_memory = node_.get<bool>("transformer.debug_transformer_memory");
  }

  void read_experts() {
    const char *experts = "transformer.num_experts", *shared = "transformer.num_shared_experts",
               *chosen = "transformer.num_experts_per_token";
    config_.experts = node_.get<int64_t>(experts);
    config_.shared_experts = node_.get<int64_t>(shared);
    config_.experts_per_token = node_.get<int64_t>(chosen);
    if (config_.experts > kMostExperts) {
      problem(experts, "expected at most " + std::to_string(kMostExperts) + ", found " +
                           std::to_string(config_.experts));
      config_.experts = 1;
      return;
    }
    if (config_.shared_experts >= config_.experts) {
      problem(shared, "expected less than num_experts (" + std::to_string(config_.experts) +
                          "), found " + std::to_string(config_.shared_experts));
      config_.shared_experts = 0;
    }
    if (config_.experts_per_token > config_.experts - config_.shared_experts) {
      problem(chosen,
              "expected num_experts_per_token and num_shared_experts to be together at most "
              "num_experts (" +
                  std::to_string(config_.experts) + "), found " +
                  std::to_string(config_.experts_per_token) + " and " +
                  std::to_string(config_.shared_experts));
      config_.shared_experts = 0;
      config_.experts_per_token = 1;
    }
    config_.routing = node_.get<std::string>("transformer.expert_routing_type") == "sinkhorn"
                          ? RoutingKind::kSinkhorn
                          : RoutingKind::kTopK;
    config_.router_balance_coefficient =
        node_.get<double>("transformer.expert_auxiliary_loss_coefficient");
    config_.router_z_coefficient = node_.get<double>("transformer.expert_z_loss_coefficient");
    config_.router_jitter = node_.get<double>("transformer.moe_jitter_eps");
    const auto biases = node_.get<std::string>("transformer.add_linear_biases");
    if (config_.experts > 1 && biases != "false" && biases != "nowhere") {
      problem("transformer.add_linear_biases", "expected false with experts (num_experts " +
                                                   std::to_string(config_.experts) +
                                                   "), which have no biases, found " + biases);
    }
  }

  void read_embeddings() {
    config_.positions = size("max_position_embeddings");
    config_.vocabulary = size("vocab_size");
    if (const auto value = node_.optional<bool>("use_position_embeddings")) {
      config_.absolute_positions = *value;
    } else {
      config_.absolute_positions = config_.rotary.kind == RotaryKind::kNone;
      node_.set("use_position_embeddings", config_.absolute_positions);
    }
    config_.tied = node_.get<bool>("tie_word_embeddings");
    config_.parallel_embeddings = node_.get<bool>("parallel_embeddings");
    config_.logits_scale = node_.get<double>("logits_scale_factor");
    config_.z_loss = node_.get<double>("logit_z_loss");
    config_.cross_entropy_splits = node_.optional<int64_t>("cross_entropy_splits").value_or(0);
  }

  void read_predictions() {
    config_.prediction_heads = node_.get<int64_t>("prediction_heads");
    if (config_.prediction_heads > kMostHeads) {
      problem("prediction_heads", "expected at most " + std::to_string(kMostHeads) + ", found " +
                                      std::to_string(config_.prediction_heads));
      config_.prediction_heads = 1;
    }
    const std::string path = "prediction_loss_coefficient";
    const auto coefficients = node_.reals(path);
    if (coefficients.empty()) return;  // null, or nothing in it
    if (right({"prediction_heads"}) && int64_t(coefficients.size()) != config_.prediction_heads) {
      problem(path, "expected one number for each of the " +
                        std::to_string(config_.prediction_heads) + " prediction_heads, found " +
                        std::to_string(coefficients.size()));
      return;
    }
    for (const double value : coefficients) {  // the host has refused negative ones
      if (std::isnan(value)) problem(path, "expected numbers, found null for one of them");
    }
    config_.prediction_coefficients = coefficients;
  }

  Init read_init(const std::string& prefix, const std::string& suffix, double deviation,
                 double maximum, double minimum) {
    Init init;
    const auto given = [&](const char* key) {
      return node_.optional<double>(prefix + key + suffix).has_value();
    };
    const bool own_bounds = given("init_method_max") || given("init_method_min");
    init.deviation = real_or(prefix + "init_method_std" + suffix, deviation);
    init.maximum = real_or(prefix + "init_method_max" + suffix, maximum);
    init.minimum = real_or(prefix + "init_method_min" + suffix, minimum);
    if (own_bounds && init.minimum > init.maximum) {  // taken over, they were judged before
      problem(prefix + "init_method_min" + suffix, "expected at most init_method_max" + suffix +
                                                       " (" + number(init.maximum) + "), found " +
                                                       number(init.minimum));
    }
    return init;
  }
  void read_init() {
    const Init all =
        read_init("transformer.", "", 1 / std::sqrt(double(config_.hidden)), kNone, kNone);
    // Matrices that write into the residual stream start smaller the more of them there are.
    const double output =
        all.deviation / std::sqrt(2.0 * double(std::max<int64_t>(config_.layers, 1)));
    const std::string at = "transformer.";
    config_.init_all = all;
    config_.init_qkv = read_init(at, "_qkv", all.deviation, all.maximum, all.minimum);
    config_.init_attention_output = read_init(at, "_attn_proj", output, all.maximum, all.minimum);
    config_.init_mlp_1 = read_init(at, "_mlp_1", all.deviation, all.maximum, all.minimum);
    config_.init_mlp_2 = read_init(at, "_mlp_2", output, all.maximum, all.minimum);
    config_.init_embedding = read_init("", "_embed", all.deviation, all.maximum, all.minimum);
    config_.random_bias = node_.get<bool>("transformer.random_bias_init");
    config_.full_precision_residual = node_.get<bool>("transformer.full_precision_residual");
  }

  double scale(const std::string& path) { return node_.optional<double>(path).value_or(kNone); }

  void read_scales() {
    const std::string path = "transformer.mlp_lr_scale";
    auto scales = node_.reals(path);
    if (scales.empty()) {  // null, which is filled in, or an empty list, which means the same
      scales = {kNone};
      if (node_.size(path) < 0) {
        sdk::check(sdk::host().config_set(node_.handle(), path.c_str(), FASTLLM_F64_LIST,
                                          scales.data(), 1));
      }
    }
    const auto experts = node_.get<int64_t>("transformer.num_experts");
    if (scales.size() != 1 && int64_t(scales.size()) != experts) {
      problem(path, "expected 1 entry or num_experts (" + std::to_string(experts) +
                        ") entries, found " + std::to_string(scales.size()));
    }
    for (double value : scales) {
      if (value < 0) problem(path, "expected entries of at least 0, found " + number(value));
    }
    config_.mlp_scales = scales;
    config_.router_scale = scale("transformer.router_lr_scale");
    config_.attention_scale = scale("transformer.attention_lr_scale");
    config_.embeddings_scale = scale("transformer.embeddings_lr_scale");
    config_.output_scale = scale("transformer.output_lr_scale");
    config_.norm_scale = scale("transformer.norm_lr_scale");
    if (config_.tied && !std::isnan(config_.output_scale)) {
      problem("transformer.output_lr_scale",
              "expected null with tie_word_embeddings, since the one weight belongs to the "
              "embedding, found " +
                  number(config_.output_scale) + "; use transformer.embeddings_lr_scale");
    }
  }

  void refuse_megatron_initialization() {
    if (node_.get<bool>("use_megatron_initialization")) {
      problem("use_megatron_initialization",
              "expected false, found true, which replays another system's random numbers; initial "
              "values here depend on seed and name alone, so load that system's weights instead");
    }
  }

  // Results do not depend on these, or not without experts.
  void note_keys_without_effect() {
    const auto note = [&](const std::string& path, const char* text) {
      sdk::log_info(kBlock + path + ": " + text);
    };
    const auto text = [&](const std::string& path, const char* fallback) {
      if (node_.get<std::string>(path) != fallback) note(path, "no effect here");
    };
    const auto flag = [&](const std::string& path, bool fallback) {
      if (node_.get<bool>(path) != fallback) note(path, "no effect here");
    };
    if (node_.optional<bool>("sequence_first")) note("sequence_first", "no effect here");
    text("cross_entropy_impl", "auto");
    text("transformer.normalization.implementation", "auto");
    flag("transformer.dropless_moe", true);
    flag("transformer.dropless_dynamic_shape", false);
    flag("transformer.use_flash_attention", true);
    if (config_.first_window_block > 0 && config_.window == 0)
      note("transformer.max_window_layers", "no effect without window_size");

    const bool mixture = config_.experts > 1;
    const bool balanced_by_loss = config_.routing == RoutingKind::kTopK;
    const auto ignored = [&](const std::string& path, bool given, bool used, const char* why) {
      if (given && !used) note(path, why);
    };
    const auto without_experts = [&](const std::string& path, bool given) {
      ignored(path, given, mixture, "no effect with num_experts 1");
    };
    without_experts("transformer.router_lr_scale", !std::isnan(config_.router_scale));
    without_experts("transformer.moe_jitter_eps", config_.router_jitter != 0);
    without_experts("transformer.expert_z_loss_coefficient", config_.router_z_coefficient != 0);
    without_experts("transformer.expert_routing_type", !balanced_by_loss);
    const std::string balance = "transformer.expert_auxiliary_loss_coefficient";
    const bool own_balance = config_.router_balance_coefficient != 0.01;
    without_experts(balance, own_balance);
    ignored(balance, mixture && own_balance, balanced_by_loss,
            "no effect with expert_routing_type sinkhorn");
  }

  sdk::Config node_;
  GptConfig config_;
  std::string problems_;
  std::set<std::string> wrong_;  // keys that a problem was told of, or that follow from such a one
};

}  // namespace

GptConfig read_config(sdk::Config node) { return Reader(node).read(); }

}  // namespace fastllm::gpt
