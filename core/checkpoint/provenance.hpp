// What made a run: kept as provenance.yaml in the run's folder and in each checkpoint, so that a
// resume can say what changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/config/node.hpp"

namespace fastllm::checkpoint {

constexpr const char* kProvenanceName = "provenance.yaml";

struct Library {  // a plugin that was loaded
  std::string id, version, path, sha256;
};

struct Provenance {
  std::string host_version;
  std::string host_sha256;  // of the program's file as it runs
  std::vector<Library> libraries;
  // The build that the model's plugin was made for, as `needs` of its manifest says; not asked of
  // the library itself. "": no plugin needs one.
  std::string libtorch;
  int threads = 0;    // of OpenMP: results are equal to the bit only for equal numbers
  config::Node data;  // dataset -> fingerprint
  int64_t seed = 0;
  config::Node config;  // resolved

  config::Node to_node() const;
};

// One line a difference, "config.optimizer.weight_decay: 0.01 before, 0.1 now"; lists by entry,
// "data.training.0: ...". Where a library lies does not count.
std::vector<std::string> differences(const config::Node& before, const config::Node& now);

void write_provenance(const std::filesystem::path& directory, const config::Node& provenance);
// Null: there is none, or it cannot be read (that only warns: it is informative).
config::Node read_provenance(const std::filesystem::path& directory);

}  // namespace fastllm::checkpoint
