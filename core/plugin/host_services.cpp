// The table handed to every plugin, and the registry of further tables by id.
#include "core/plugin/host_services.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "core/base/cancel.hpp"
#include "core/base/log.hpp"
#include "core/base/version.hpp"
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

// Whether this process logs `line` for the first time. Bounded: beyond the most lines all are new.
bool first_time(const std::string& line) {
  struct Said {
    std::mutex mutex;
    std::set<std::string> lines;
  };
  static auto* said = new Said;  // plugins may log while the process ends
  constexpr size_t kMostLines = 1024, kLongest = 1024;
  if (line.size() > kLongest) return true;
  std::lock_guard lock(said->mutex);
  if (said->lines.size() >= kMostLines) return !said->lines.contains(line);
  return said->lines.insert(line).second;
}

// What a model says of its configuration while it is made is said once: the same configuration is
// read again for each checkpoint that is compared with it.
bool is_repeated_note(log::Level level, const std::string& line) {
  constexpr std::string_view kMaking = "create";
  return level <= log::Level::kInfo && t_call.what && t_call.what == kMaking && !first_time(line);
}

void log_service(int32_t code, const char* text) {
  try {
    auto level =
        log::Level(std::clamp(code, int32_t(log::Level::kDebug), int32_t(log::Level::kFatal)));
    std::string id = active_plugin_id();
    std::string line = fmt::format("plugin {}: {}", id.empty() ? "?" : id, text ? text : "");
    if (!is_repeated_note(level, line)) log::write(level, line);
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
    host.version = version_text();
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
