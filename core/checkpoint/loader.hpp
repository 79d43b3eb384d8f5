// Fills flat states from a checkpoint of any world: whole flat shards when the layouts are equal,
// else parameter by parameter, by name. Every element of every shard is filled exactly once, or the
// load fails and says what is missing.
#pragma once

#include <fastllm/stage.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/checkpoint/flat_states.hpp"
#include "core/checkpoint/format.hpp"
#include "core/checkpoint/model_identity.hpp"
#include "core/config/node.hpp"

namespace fastllm::checkpoint {

struct LoadRequest {
  Format& format;
  std::filesystem::path path;
  FlatStates states;  // to be filled: weights, and optimizer states if they are wanted
  const ModelIdentity& model;
  const fastllm_stages* stages = nullptr;  // to compare worlds; null: always by name
  bool verify_checksums = true;            // against manifest.json, where there is one
  // Of the ranks of states.layout, which all load: each verifies some of the files. Null: this one
  // verifies all.
  Meet meet = {};
};

struct LoadResult {
  config::Node metadata;      // the whole of it: model, config, shards, metadata
  bool whole_shards = false;  // moved without looking at parameters
  std::vector<std::string>
      started_at_zero;               // trainable now, without optimizer state in the checkpoint
  std::vector<std::string> dropped;  // with optimizer state in the checkpoint, frozen now
};

// Of several ranks, each returns when all have read. On Error the states' contents are unspecified.
// What was gathered from them, and gradients, are the caller's to renew.
LoadResult load(const LoadRequest& request);

}  // namespace fastllm::checkpoint
