// Where plugins lie and whether a file may be loaded: search order, ownership and permissions,
// manifests, shadowing. Runs no code of a plugin.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/plugin/manifest.hpp"

namespace fastllm::plugin {

struct SearchOptions {
  std::vector<std::filesystem::path> paths;  // --plugin-path, in order
  bool allow_insecure = false;               // --allow-insecure-plugins
};

struct SearchPlace {
  std::filesystem::path directory;  // absolute, or as given when refused
  std::string origin;               // "--plugin-path", "FASTLLM_PLUGIN_PATH", "next to the program"
  std::string problem;              // why it is not searched; "": it is
};

struct Candidate {
  std::string name;  // "gpt" of libfastllm_gpt.so
  std::filesystem::path path;
  std::string
      origin;  // "--plugin-path /x", "FASTLLM_PLUGIN_PATH /y", "next to the program", "given path"
  Manifest manifest;
  std::string refused;      // why it cannot be loaded; "": it can
  bool shadowed = false;    // another of that name, or the same file, comes first
  std::string shadowed_by;  // its path
  dev_t device = 0;         // of the file behind the path
  ino_t inode = 0;
};

std::vector<SearchPlace> search_places(const SearchOptions& options);
std::vector<Candidate> discover(const std::vector<SearchPlace>& places, bool allow_insecure);

// One file. root: the folder up to which folders are checked. Never throws for what is wrong with
// the file.
Candidate examine(const std::filesystem::path& path, const std::filesystem::path& root,
                  const std::string& origin, bool allow_insecure);

// Why a file or folder of that owner and mode is not safe to run code from; "": it is.
std::string insecure_reason(uid_t owner, gid_t group, mode_t mode);

}  // namespace fastllm::plugin
