// The table handed to every plugin, and the registry of further tables by id.
#include "core/plugin/host_services.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "core/base/cancel.hpp"
#include "core/base/log.hpp"
#include "core/plugin/config_services.hpp"
#include "core/plugin/crash.hpp"
#include "core/plugin/host_memory.hpp"

namespace fastllm::plugin {
namespace {

struct Offers {
  std::mutex mutex;
  std::map<std::string, const void*, std::less<>> tables;
};
Offers& offers() {
  static auto* instance = new Offers;  // plugins may ask while the process ends
  return *instance;
}

const void* get_table(const char* id) {
  if (!id) return nullptr;
  auto& o = offers();
  std::lock_guard lock(o.mutex);
  auto found = o.tables.find(std::string_view(id));
  return found == o.tables.end() ? nullptr : found->second;
}

fastllm_status fail_service(fastllm_status code, const char* text) {
  try {
    return set_failure(code, text ? text : "", true);
  } catch (...) {  // no memory for the text
    return code == FASTLLM_OK ? FASTLLM_INTERNAL : code;
  }
}

void log_service(int32_t level, const char* text) {
  try {
    std::string id = active_plugin_id();
    log::write(
        log::Level(std::clamp(level, int32_t(log::Level::kDebug), int32_t(log::Level::kFatal))),
        fmt::format("plugin {}: {}", id.empty() ? "?" : id, text ? text : ""));
  } catch (...) {
  }
}

int32_t cancelled_service() { return stop_requested(); }

// A terminal is drawn at most ten times a second; the last piece always.
void progress_service(const char* what, uint64_t done, uint64_t total) {
  using Clock = std::chrono::steady_clock;
  static std::atomic<Clock::rep> last{0};
  try {
    if (total > 0 && done >= total) return log::progress("");
    auto now = Clock::now().time_since_epoch().count();
    if (now - last.load(std::memory_order_relaxed) <
        Clock::duration(std::chrono::milliseconds(100)).count())
      return;
    last.store(now, std::memory_order_relaxed);
    log::progress(total > 0 ? fmt::format("{} {}/{}", what ? what : "", done, total)
                            : fmt::format("{} {}", what ? what : "", done));
  } catch (...) {
  }
}

}  // namespace

void offer(const char* id, const void* table) {
  auto& o = offers();
  std::lock_guard lock(o.mutex);
  if (table) {
    o.tables[id] = table;
  } else {
    o.tables.erase(id);
  }
}

const fastllm_host* host_table() {
  static const fastllm_host table = [] {
    fastllm_host host{};
    host.size = sizeof host;
    host.minor = FASTLLM_MINOR;
    host.name = "fastllm-host";
    host.version = FASTLLM_VERSION;
    host.get = get_table;
    host.fail = fail_service;
    host.log = log_service;
    host.cancelled = cancelled_service;
    host.progress = progress_service;
    host.alloc = alloc_service;
    fill_config_services(host);
    return host;
  }();
  return &table;
}

}  // namespace fastllm::plugin
