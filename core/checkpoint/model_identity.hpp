// Which model a run trains, compared with the one a checkpoint holds: only keys that the model's
// plugin marks as architecture count, and defaults count as if they were written.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/node.hpp"
#include "core/config/schema.hpp"

namespace fastllm::checkpoint {

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

}  // namespace fastllm::checkpoint
