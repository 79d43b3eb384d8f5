// fastllm-host plugins: what is found, from where, what is shadowed or refused and why. Loads nothing.
#include <cstdio>

#include "apps/host/commands/commands.hpp"
#include "core/plugin/registry.hpp"

namespace fastllm::host {

int run_plugins(const Options& options) {
  plugin::Registry registry({options.plugin_paths, options.allow_insecure_plugins});
  std::fputs(plugin::plugins_report(registry).c_str(), stdout);
  return kDone;
}

}  // namespace fastllm::host
