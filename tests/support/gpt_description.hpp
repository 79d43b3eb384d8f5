// A GPT as the reference declares it, in numbers: for tests of layout, memory and optimizer groups that want no plugin.
// Knows the names of both ages of checkpoints; the wiring is the least that is valid.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/model/description.hpp"

namespace fastllm::test {

struct GptShape {
  int64_t layers = 12, hidden = 1024, heads = 8, head_groups = 1;
  int64_t kv_channels = 0;  // 0: hidden / heads
  int64_t ffn = 0;          // 0: 4 * hidden
  int64_t vocabulary = 49152, positions = 2048;
  int64_t experts = 1, shared_experts = 0;
  bool rotary = false, rms_norm = false, gated = false, biases = true, tied = true;
  bool parallel_embeddings = true;
  bool new_names = false;  // "decoder.0.mixer.query.weight" for "layers.1.self_attn.query.weight"
  // Learning-rate scales by kind: mlp, router, attention, embeddings, output, norm.
  std::map<std::string, std::vector<double>> scales;
};

// Small enough to look at every element.
inline GptShape small_gpt_shape(int64_t layers, int64_t hidden) {
  GptShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = 4;
  shape.vocabulary = 50;
  shape.positions = 16;
  return shape;
}

class GptDescriber {
 public:
  explicit GptDescriber(const GptShape& shape) : s_(shape) {}

  model::Description describe() {
    d_.type = "gpt";
    const int64_t kv = s_.kv_channels ? s_.kv_channels : s_.hidden / s_.heads;
    const int64_t ffn = s_.ffn ? s_.ffn : 4 * s_.hidden;
    begin_layer("embeddings", 1000);
    embedding("word_embeddings_weight", s_.vocabulary, "embeddings");
    if (!s_.rotary) {
      auto p = matrix("position_embeddings_weight", {s_.positions, s_.hidden}, "embeddings");
      p.flags = s_.parallel_embeddings ? 0 : FASTLLM_PARAM_PARTIAL;
      declare(p);
    }
    for (int64_t block = 0; block < s_.layers; ++block) {
      begin_layer(s_.new_names ? "decoder." + std::to_string(block) : "", 1);
      norm("norm_1");
      norm("norm_2");
      const std::string mixer = s_.new_names ? "mixer." : "self_attn.";
      const int64_t query = s_.heads * kv, unit = s_.head_groups > 1 ? query / s_.head_groups : kv;
      linear(mixer + "query", query, s_.hidden, "attention", true, 1, unit);
      linear(mixer + "key_value", 2 * s_.head_groups * kv, s_.hidden, "attention",
             s_.head_groups > 1, 2, kv);
      input_linear(mixer + "dense", query, unit);
      linear("mlp.layer_1", s_.experts * ffn * (s_.gated ? 2 : 1), s_.hidden, "mlp", true,
             s_.experts * (s_.gated ? 2 : 1), 1);
      second_mlp(ffn);
      if (s_.experts > 1) {
        auto p = matrix("mlp.router.weight", {s_.experts - s_.shared_experts, s_.hidden}, "router");
        p.flags = FASTLLM_PARAM_PARTIAL;
        declare(p);
      }
    }
    begin_layer("head", 1);
    if (s_.tied)
      d_.declare(int(d_.layers.size()) - 1, d_.parameters[0]);
    else
      embedding("output_weights", s_.vocabulary, "output");
    norm("final_norm");
    wire();
    return std::move(d_);
  }

 private:
  void begin_layer(const std::string& new_name, double cost) {
    model::Layer layer;
    layer.name = s_.new_names ? new_name : "layers." + std::to_string(d_.layers.size());
    layer.cost = cost;
    d_.layers.push_back(layer);
  }

  void declare(model::Parameter p) { d_.declare(int(d_.layers.size()) - 1, std::move(p)); }

  model::Parameter matrix(const std::string& name, std::vector<int64_t> shape,
                          const std::string& kind) {
    model::Parameter p;
    p.name = d_.layers.back().name + "." + name;
    p.shape = std::move(shape);
    p.init = FASTLLM_INIT_NORMAL;
    p.init_b = 0.02;
    if (s_.scales.count(kind)) p.lr_scales = s_.scales.at(kind);
    return p;
  }

  model::Parameter vector(const std::string& name, int64_t size, const std::string& kind) {
    model::Parameter p = matrix(name, {size}, kind);
    p.init = FASTLLM_INIT_ZEROS;
    p.weight_decay = 0;
    p.flags = FASTLLM_PARAM_PARTIAL;
    return p;
  }

  void norm(const std::string& name) {
    declare(vector(name + ".weight", s_.hidden, "norm"));
    if (!s_.rms_norm) declare(vector(name + ".bias", s_.hidden, "norm"));
  }

  void split(model::Parameter& p, int dim, int64_t blocks, int64_t unit) {
    p.shard_group = "tensor";
    p.shard_dim = dim;
    p.shard_blocks = blocks;
    p.shard_unit = unit;
  }

  // Split over its outputs.
  void linear(const std::string& name, int64_t out, int64_t in, const std::string& kind,
              bool is_split, int64_t blocks, int64_t unit) {
    model::Parameter weight = matrix(name + ".weight", {out, in}, kind);
    weight.flags = FASTLLM_PARAM_PARTIAL;
    if (is_split) split(weight, 0, blocks, unit);
    declare(weight);
    if (!s_.biases) return;
    model::Parameter bias = vector(name + ".bias", out, kind);
    if (is_split) split(bias, 0, blocks, unit);
    declare(bias);
  }

  // Split over its inputs; the bias is added after the sum and whole.
  void input_linear(const std::string& name, int64_t in, int64_t unit) {
    model::Parameter weight = matrix(name + ".weight", {s_.hidden, in}, "attention");
    split(weight, 1, 1, unit);
    declare(weight);
    if (s_.biases) declare(vector(name + ".bias", s_.hidden, "attention"));
  }

  // Stored transposed: rows are inputs.
  void second_mlp(int64_t ffn) {
    model::Parameter weight = matrix("mlp.layer_2.weight", {s_.experts * ffn, s_.hidden}, "mlp");
    split(weight, 0, s_.experts, 1);
    declare(weight);
    if (s_.biases) declare(vector("mlp.layer_2.bias", s_.hidden, "mlp"));
  }

  void embedding(const std::string& name, int64_t vocabulary, const std::string& kind) {
    model::Parameter p = matrix(name, {vocabulary, s_.hidden}, kind);
    p.flags = FASTLLM_PARAM_PARTIAL;
    if (s_.parallel_embeddings) {
      split(p, 0, 1, 1);
      p.flags |= FASTLLM_PARAM_WHOLE_AT_ONE;
    }
    declare(p);
  }

  void wire() {
    const model::Port hidden{"hidden", 0, {0, 0, 1}, {FASTLLM_DIM_TOKENS, s_.hidden}};
    const model::Port tokens{
        "tokens", FASTLLM_PORT_BATCH, {kDLInt, 64, 1}, {FASTLLM_DIM_BATCH, FASTLLM_DIM_SEQUENCE}};
    model::Port labels = tokens;
    labels.name = "labels";
    for (size_t l = 0; l < d_.layers.size(); ++l) {
      d_.layers[l].inputs.push_back(l == 0 ? tokens : hidden);
      if (l + 1 < d_.layers.size()) d_.layers[l].outputs.push_back(hidden);
    }
    d_.layers.back().inputs.push_back(labels);
    d_.layers.back().outputs.push_back(
        {"language_model_loss", FASTLLM_PORT_LOSS | FASTLLM_PORT_SUM, {0, 0, 1}, {}});
  }

  const GptShape s_;
  model::Description d_;
};

inline model::Description gpt_description(const GptShape& shape) {
  return GptDescriber(shape).describe();
}

}  // namespace fastllm::test
