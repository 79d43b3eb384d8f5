// One plugin library in this process: opened, greeted, its tables checked against its manifest and
// wrapped. The home of Boost.DLL. Never unloaded.
#pragma once

#include <functional>
#include <memory>

#include "core/plugin/context.hpp"
#include "core/plugin/registry.hpp"

namespace fastllm::plugin {

class Library final : public Plugin {
 public:
  // Throws Error with the plugin's name in front.
  explicit Library(const Candidate& candidate);

  const LibraryInfo& info() const override { return info_; }
  const std::vector<std::unique_ptr<ModelFactory>>& models() const override { return models_; }
  const std::vector<std::unique_ptr<checkpoint::Format>>& formats() const override {
    return formats_;
  }
  const Candidate& candidate() const { return candidate_; }
  void shutdown() noexcept;  // once; nothing of it is called afterwards

 private:
  void greet(fastllm_plugin const* (*entry)(fastllm_host const*));
  template <class Table>
  void each_table(const char* id, const std::function<void(const Table*)>& use);

  Candidate candidate_;
  std::shared_ptr<const Identity> identity_;
  LibraryInfo info_;
  fastllm_plugin door_{};
  std::vector<std::unique_ptr<ModelFactory>> models_;
  std::vector<std::unique_ptr<checkpoint::Format>> formats_;
};

}  // namespace fastllm::plugin
