// metadata.yaml: what the files hold, for which model, in which flat layout (README.md,
// "metadata.yaml"). Reading accepts the key names of all ages; writing gives sorted keys and no
// empty blocks, byte for byte as the reference.
#pragma once

#include <fastllm/plugin.hpp>
#include <map>
#include <string>
#include <vector>

namespace fastllm::distributed {

// Of what this plugin writes: named shards, trainable and frozen apart.
constexpr const char* kWrittenVersion = "0.2.0";

struct Header {
  std::string version;              // fast_llm_version
  bool later_names = false;         // 0.3 and 0.4: parameter names of a later release (age 2)
  std::vector<std::string> shards;  // states held, weights first
  int ranks = 1;
};

// Reads path/metadata.yaml into `metadata`, brings old key names up to date, and checks what every
// use needs.
Header read_metadata(const std::string& path, sdk::Config metadata);

// The file's text.
std::string metadata_text(sdk::Config metadata);
// The same by top-level key, for a safetensors header: scalars plain, everything else as YAML text.
std::map<std::string, std::string> metadata_entries(sdk::Config metadata);

}  // namespace fastllm::distributed
