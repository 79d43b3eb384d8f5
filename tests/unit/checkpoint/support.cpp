// The shared fixtures; describe_gpt repeats the plugin's description, so no test needs LibTorch.
#include "tests/unit/checkpoint/support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/checkpoint/placement.hpp"
#include "core/plugin/registry.hpp"
#include "core/plugin/stage_tables.hpp"

namespace fastllm::test {
namespace {

namespace fs = std::filesystem;
using model::Description;
using model::Parameter;

template <class T>
T value(const Node& node, const char* path, T fallback) {
  return node.get_optional<T>(path).value_or(fallback);
}

}  // namespace

fs::path fixture(const std::string& name) {
  return fs::path(FASTLLM_SOURCE_DIR) / "tests/fixtures" / name;
}

nlohmann::json expected_of(const std::string& name) {
  std::ifstream file(fixture(name) / "expected.json");
  return nlohmann::json::parse(file);
}

std::vector<std::string> states() { return {"weights", "exp_avgs", "exp_avgs_sq"}; }

checkpoint::Format& distributed() {
  static auto* registry = [] {
    plugin::offer_stage_tables();
    plugin::set_describer(describe_gpt);
    plugin::SearchOptions options;
    options.paths = {fs::path(FASTLLM_BINARY_DIR) / "lib/fastllm/plugins"};
    options.allow_insecure = true;  // a build folder may be group-writable
    return new plugin::Registry(options);
  }();
  return registry->format("distributed");
}

Description describe_gpt(const Node& metadata) {
  const Node* base = metadata.find("config.base_model");
  if (!base) throw Error(Status::kInvalid, "config.base_model: expected a block, found none");
  const auto integer = [&](const char* path, int64_t fallback) {
    return value<int64_t>(*base, path, fallback);
  };
  const auto flag = [&](const char* path, bool fallback) {
    return value<bool>(*base, path, fallback);
  };
  const int64_t layers = integer("transformer.num_layers", 12),
                hidden = integer("transformer.hidden_size", 1024);
  const int64_t heads = integer("transformer.num_attention_heads", 8),
                groups = integer("transformer.head_groups", 1);
  const int64_t channels = integer("transformer.kv_channels", hidden / heads),
                ffn = integer("transformer.ffn_hidden_size", 4 * hidden);
  const int64_t vocabulary = integer("vocab_size", 49152),
                gates = flag("transformer.gated", false) ? 2 : 1;
  const bool biases = flag("transformer.add_linear_biases", true),
             tied = flag("tie_word_embeddings", true);
  const bool rotary = value<std::string>(*base, "transformer.rotary.type", "none") != "none";
  const bool layer_norm =
      value<std::string>(*base, "transformer.normalization.type", "layer_norm") == "layer_norm";
  std::vector<double> mlp_scales;
  if (const Node* scales = base->find("transformer.mlp_lr_scale")) {
    for (size_t i = 0; i < scales->size(); ++i) {
      mlp_scales.push_back(scales->at(i).is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                   : scales->at(i).as_real());
    }
  }

  Description d;
  d.type = "gpt";
  int layer = -1;
  const auto begin_layer = [&](double cost) {
    d.layers.push_back({.name = "layers." + std::to_string(++layer),
                        .flags = 0,
                        .cost = cost,
                        .inputs = {},
                        .outputs = {},
                        .parameters = {}});
  };
  const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                       bool matrix) -> Parameter& {
    Parameter p;
    p.name = d.layers[size_t(layer)].name + "." + name;
    p.shape = std::move(shape);
    p.weight_decay = matrix;
    p.flags = FASTLLM_PARAM_PARTIAL;
    p.first_layer = layer;
    d.layers[size_t(layer)].parameters.push_back(int(d.parameters.size()));
    d.parameters.push_back(std::move(p));
    return d.parameters.back();
  };
  const auto split = [](Parameter& p, int dim, int64_t blocks, int64_t unit) {
    p.shard_group = "tensor";
    p.shard_dim = dim;
    p.shard_blocks = blocks;
    p.shard_unit = unit;
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {hidden}, false);
    if (layer_norm) add(name + ".bias", {hidden}, false);
  };
  const auto linear = [&](const std::string& name, int64_t out, int64_t in, bool split_out,
                          bool splits, int64_t blocks, int64_t unit,
                          const std::vector<double>& scales) {
    Parameter& weight = add(name + ".weight", {out, in}, true);
    weight.lr_scales = scales;
    if (splits) split(weight, split_out ? 0 : 1, blocks, unit);
    if (!biases) return;
    Parameter& bias = add(name + ".bias", {out}, false);
    bias.lr_scales = scales;
    if (splits && split_out) split(bias, 0, blocks, unit);
  };

  begin_layer(1000);
  Parameter& words = add("word_embeddings_weight", {vocabulary, hidden}, true);
  split(words, 0, 1, 1);
  words.flags |= FASTLLM_PARAM_WHOLE_AT_ONE;
  if (flag("use_position_embeddings", !rotary))
    add("position_embeddings_weight", {integer("max_position_embeddings", 2048), hidden}, true)
        .flags = 0;
  for (int64_t i = 0; i < layers; ++i) {
    begin_layer(1);
    norm("norm_1");
    norm("norm_2");
    linear("self_attn.query", heads * channels, hidden, true, true, 1, channels, {});
    linear("self_attn.key_value", 2 * groups * channels, hidden, true, groups > 1, 2, channels, {});
    linear("self_attn.dense", hidden, heads * channels, false, true, 1, channels, {});
    linear("mlp.layer_1", gates * ffn, hidden, true, true, gates, 1, mlp_scales);
    // Stored with the inner dimension first: (ffn, hidden), rows cut.
    Parameter& second = add("mlp.layer_2.weight", {ffn, hidden}, true);
    second.lr_scales = mlp_scales;
    split(second, 0, 1, 1);
    if (biases) add("mlp.layer_2.bias", {hidden}, false).lr_scales = mlp_scales;
  }
  begin_layer(1);
  if (tied) {
    d.layers.back().parameters.push_back(0);
  } else {
    Parameter& output = add("output_weights", {vocabulary, hidden}, true);
    split(output, 0, 1, 1);
    output.flags |= FASTLLM_PARAM_WHOLE_AT_ONE;
  }
  norm("final_norm");
  return d;
}

Node metadata_of(const std::string& name) {
  return config::parse_yaml(read_file(fixture(name) / "metadata.yaml"), name);
}

Node small_metadata(const std::string& base_model_yaml, const std::string& distributed_yaml) {
  Node metadata = metadata_of("E1-distributed-llama");
  metadata.erase_child("metadata");
  for (const auto& [block, text] : {std::pair("config.base_model", base_model_yaml),
                                    std::pair("config.distributed", distributed_yaml)}) {
    if (text.empty()) continue;
    const Node changes = config::parse_yaml(text, "test");
    for (size_t i = 0; i < changes.size(); ++i)
      metadata.set(std::string(block) + "." + changes.key(i), changes.at(i));
  }
  return metadata;
}

Job::Job(const Node& from, int of_rank, const shard::StoreOptions& options)
    : metadata(from),
      description(describe_gpt(metadata)),
      layout(description, plugin::layout_of_metadata(metadata, 1).world,
             plugin::layout_of_metadata(metadata, 1).options),
      rank(of_rank) {
  identity.type = "gpt";
  identity.base_model = *metadata.find("config.base_model");
  for (const char* path :
       {"transformer.hidden_size", "transformer.num_layers", "tie_word_embeddings", "vocab_size"}) {
    config::Field field;
    field.path = path;
    field.architecture = true;
    identity.fields.push_back(field);
  }
  if (layout.world().size() == 1) {
    store = std::make_unique<shard::Store>(layout, rank, options);
  } else {
    for (const std::string& state : states()) {
      memory_.emplace_back(size_t(layout.state_elements(rank, state)));
      sizes_.push_back(int64_t(memory_.back().size()));
    }
    for (size_t i = 0; i < memory_.size(); ++i) {
      tensors_.push_back(
          {memory_[i].data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &sizes_[i], nullptr, 0});
    }
  }
  run();
}

Job::~Job() { plugin::set_running(nullptr, nullptr); }

void Job::run() const { plugin::set_running(&layout, store.get(), rank); }

DLTensor* Job::tensor(const std::string& state) {
  if (store) return store->flat(state);
  const auto names = states();
  return &tensors_[size_t(std::find(names.begin(), names.end(), state) - names.begin())];
}

float* Job::data(const std::string& state) { return static_cast<float*>(tensor(state)->data); }

checkpoint::FlatStates Job::flat_states(bool optimizer_state) {
  checkpoint::FlatStates result{&layout, rank, {}};
  for (const std::string& state : states()) {
    if (state == "weights" || optimizer_state) result.states.push_back({state, tensor(state)});
  }
  return result;
}

namespace {

// body(parameter index, global element, flat position)
template <class Body>
void each_element(Job& job, const std::string& state, Body&& body) {
  const checkpoint::FlatStates states = job.flat_states();
  checkpoint::for_each_piece(
      states, [&](const shard::Placed& placed, int group, int piece, const Parameter& parameter) {
        for (const auto& run :
             checkpoint::runs_of(job.layout, job.rank, state, placed.stage, group, piece)) {
          const int64_t length = run.shape.back();
          for (int64_t i = 0; i < run.count(); ++i) {
            const int64_t row = run.shape.size() > 1 ? i / length * run.strides[0] : 0;
            body(int(&parameter - job.description.parameters.data()), run.offset + row + i % length,
                 run.flat + i);
          }
        }
      });
}

}  // namespace

void Job::fill(float salt) {
  for (const std::string& state : states()) {
    std::fill(data(state), data(state) + tensor(state)->shape[0], 0.0f);
    const float scale = state == "weights" ? 1.0f : state == "exp_avgs" ? -0.5f : 0.25f;
    each_element(*this, state, [&](int parameter, int64_t global, int64_t position) {
      data(state)[position] = scale * (float(parameter) + 1 + float(global) / 65536) + salt;
    });
  }
}

std::vector<float> Job::gather(const std::string& state, const std::string& name) {
  const auto& parameters = description.parameters;
  const auto wanted = std::find_if(parameters.begin(), parameters.end(),
                                   [&](const Parameter& p) { return p.name == name; });
  if (wanted == parameters.end()) throw Error(Status::kNotFound, name);
  std::vector<float> values(size_t(wanted->elements()), std::numeric_limits<float>::quiet_NaN());
  each_element(*this, state, [&](int parameter, int64_t global, int64_t position) {
    if (parameter == wanted - parameters.begin()) values[size_t(global)] = data(state)[position];
  });
  return values;
}

std::vector<float> Job::flat(const std::string& state) {
  return {data(state), data(state) + tensor(state)->shape[0]};
}

float fixture_value(const std::string& state, int ordinal, int64_t i) {
  const double scale = state == "weights" ? 1 : state == "exp_avgs" ? -0.5 : 0.25;
  return float(scale * (ordinal + double(i) / 4096));
}

void write_file(const fs::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), std::streamsize(content.size()));
  if (!file.flush()) throw Error(Status::kUnavailable, "cannot write " + path.string());
}

void copy_tree(const fs::path& from, const fs::path& to) {
  fs::copy(from, to, fs::copy_options::recursive);
}

}  // namespace fastllm::test
