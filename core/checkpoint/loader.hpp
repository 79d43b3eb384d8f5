// Fills flat states from a checkpoint of any world: whole flat shards when the layouts are equal, else
// parameter by parameter, by name. Every element of every shard is filled exactly once, or the load
// fails and says what is missing.
#pragma once

#include <fastllm/stage.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/checkpoint/flat_states.hpp"
#include "core/checkpoint/format.hpp"
#include "core/config/node.hpp"
#include "core/config/schema.hpp"

namespace fastllm::checkpoint {

// The running model, to compare with the one in a checkpoint.
struct ModelIdentity {
  std::string type;                   // "gpt"
  config::Node base_model;            // resolved
  std::vector<config::Field> fields;  // below base_model; those marked `architecture` are compared
  // Fills the defaults, computed ones included, of a checkpoint's base_model. Empty: only keys
  // written there are compared.
  std::function<config::Node(const config::Node& base_model)> resolve = {};
};

// One line a key, "transformer.hidden_size is 12 in the checkpoint and 16 here".
std::vector<std::string> architecture_differences(const ModelIdentity& model,
                                                  const config::Node& checkpoint_base_model);

struct LoadRequest {
  Format& format;
  std::filesystem::path path;
  FlatStates states;  // to be filled: weights, and optimizer states if they are wanted
  const ModelIdentity& model;
  const fastllm_stages* stages = nullptr;  // to compare worlds; null: always by name
  bool verify_checksums = true;            // against manifest.json, where there is one
};

struct LoadResult {
  config::Node metadata;      // the whole of it: model, config, shards, metadata
  bool whole_shards = false;  // moved without looking at parameters
  std::vector<std::string>
      started_at_zero;               // trainable now, without optimizer state in the checkpoint
  std::vector<std::string> dropped;  // with optimizer state in the checkpoint, frozen now
};

// On Error the store's contents are unspecified. Weights are invalidated in the buffers, gradients
// are zero.
LoadResult load(const LoadRequest& request);

}  // namespace fastllm::checkpoint
