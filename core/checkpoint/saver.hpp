// A checkpoint is complete or absent. Files are written aside on the same file system, synced,
// listed with checksums, read back in samples, marked `ok`, synced, and only then given their name.
// A kill at any moment leaves the older ones newest. Several ranks write into one folder, each its own
// states; rank 0 does the rest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/checkpoint/flat_states.hpp"
#include "core/checkpoint/format.hpp"
#include "core/config/node.hpp"

namespace fastllm::checkpoint {

struct SaveRequest {
  Format& format;
  FlatStates states;  // what is saved
  config::Node
      metadata;  // model, config, metadata (training state); shards and format are filled in
  std::filesystem::path base;  // where saves bear their iteration as name: {experiment}/checkpoint
  int64_t iteration = 0;
  std::filesystem::path
      aside;  // for what is not finished: {experiment}/.saving. Nothing else may live in it
  std::map<std::string, std::string> extra_files = {};  // name -> content: provenance.yaml
  bool read_back = true;  // compares samples of the written files with memory
  Meet meet = {};         // of the ranks of states.layout, which all save; null: one rank
};

// Returns the checkpoint's folder. A leftover of that name without `ok` gives way, with a warning.
// On failure everything that was written is removed, except what other ranks may still be writing:
// that is left aside, for remove_leftovers(). A full disk is told with the bytes needed and free.
std::filesystem::path save(const SaveRequest& request);

// Bytes the states of all ranks take in files.
int64_t bytes_to_save(const FlatStates& states);

// Removes what killed saves left. Only with the experiment's lock held.
void remove_leftovers(const std::filesystem::path& aside);

}  // namespace fastllm::checkpoint
