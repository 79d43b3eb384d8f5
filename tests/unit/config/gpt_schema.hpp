// The core's keys with those of the gpt plugin, taken from the plugin's own source: neither LibTorch nor a library is loaded.
#pragma once

#include <string>

#include "core/config/node.hpp"
#include "core/config/schema.hpp"

namespace fastllm::test {

config::Schema gpt_schema();
// What the plugin computes, into model.base_model. Returns what it refuses ("": nothing).
std::string fill_gpt_defaults(config::Node& root);

}  // namespace fastllm::test
