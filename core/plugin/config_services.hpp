// What a fastllm_config* is, and the config_* functions of the host's table over it.
// A handle is a path in a tree, looked up at each use, so that none dangles when the tree changes
// below it.
#pragma once

#include <fastllm/plugin.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/config/node.hpp"

namespace fastllm::plugin {

class ConfigTree;

}  // namespace fastllm::plugin

struct fastllm_config {
  fastllm::plugin::ConfigTree* tree;
  std::string path;  // from the tree's root; "": the root
};

namespace fastllm::plugin {

// Lends a node to plugins. Handles and texts handed out live as long as this object.
class ConfigTree {
 public:
  // declared: paths that may be set, and only while null (a plugin's computed defaults); null: any
  // path may.
  explicit ConfigTree(config::Node& node, const std::vector<std::string>* declared = nullptr);
  ConfigTree(const ConfigTree&) = delete;
  ConfigTree& operator=(const ConfigTree&) = delete;

  config::Node& node() { return node_; }
  fastllm_config* handle(const std::string& path = {});
  // A copy that stays.
  const char* keep(std::string_view text);
  // The one text of config_text; replaced by the next.
  const char* keep_latest(std::string text);
  void check_may_set(const std::string& path);
  std::mutex& mutex() { return mutex_; }

 private:
  config::Node& node_;
  const std::vector<std::string>* declared_;
  std::set<std::string> filled_;  // by the plugin, so it may change its mind
  std::map<std::string, std::unique_ptr<fastllm_config>> handles_;
  std::unordered_set<std::string> texts_;
  std::string latest_;
  std::mutex mutex_;  // two handles of one tree may be on two threads
};

void fill_config_services(fastllm_host& table);

}  // namespace fastllm::plugin
