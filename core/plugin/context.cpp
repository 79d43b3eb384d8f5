// Names for errors: what a thread is in, and what became of a plugin's call. The slow half of
// context.hpp; none of it runs in a call that succeeds.
#include "core/plugin/context.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <mutex>
#include <set>

#include "core/base/log.hpp"
#include "core/plugin/crash.hpp"

namespace fastllm::plugin {
namespace {

constexpr size_t kMaxFailureBytes = 64 << 10;

std::string& failure_text() {
  static thread_local std::string text;
  return text;
}

bool is_known(fastllm_status status) {
  switch (static_cast<Status>(status)) {
    case Status::kCancelled:
    case Status::kInvalid:
    case Status::kNotFound:
    case Status::kOutOfMemory:
    case Status::kUnsupported:
    case Status::kInternal:
    case Status::kUnavailable:
    case Status::kDataLoss:
      return true;
    case Status::kOk:
      break;
  }
  return false;
}

// Names of C++ types are mangled; "std::out_of_range" reads better.
std::string demangled(const std::type_info* type) {
  if (!type) return "an unknown kind";
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : type->name();
}

}  // namespace

std::shared_ptr<const Identity> Identity::make(std::string id, std::string version,
                                               std::string file) {
  auto identity = std::make_shared<Identity>();
  identity->label = fmt::format("plugin {} ({} {})", id, file, version);
  identity->id = std::move(id);
  identity->version = std::move(version);
  identity->file = std::move(file);
  return identity;
}

void enter_thread() {
  register_crash_thread(&t_call);
  t_call.known = true;
}

std::string describe(const Call& call) {
  std::string text = call.plugin ? call.plugin->label : "a plugin";
  text += ", ";
  if (call.layer >= 0) text += fmt::format("layer {} ", call.layer);
  text += call.what ? call.what : "call";
  if (call.detail && *call.detail) text += fmt::format(" {}", call.detail);
  return text;
}

fastllm_status set_failure(int32_t status, std::string_view text, bool by_plugin) {
  failure_text() = text.substr(0, kMaxFailureBytes);
  (by_plugin ? t_call.plugin_failed : t_call.host_failed) = true;
  // "fail" must fail: a plugin that passes on its result would otherwise report success.
  return status == FASTLLM_OK ? FASTLLM_INTERNAL : status;
}

const std::string& latest_failure() { return failure_text(); }

void throw_failed_call(fastllm_status status) {
  std::string text;
  if (failure_given()) text = failure_text();
  if (text.empty()) {
    text =
        status == FASTLLM_CANCELLED
            ? "cancelled"
            : fmt::format("gave no reason (status {}, {}); this is a fault of the plugin", status,
                          is_known(status) ? status_name(Status(status)) : "unknown to this host");
  } else if (!is_known(status)) {
    text += fmt::format(" (status {}, unknown to this host)", status);
  }
  throw Error(is_known(status) ? Status(status) : Status::kInternal,
              fmt::format("{}: {}", describe(t_call), text));
}

void throw_foreign_exception() {
  std::string text;
  try {
    throw;
  } catch (abi::__forced_unwind&) {
    throw;  // a cancelled thread: must go on
  } catch (const std::exception& e) {
    text = fmt::format("threw {} across the C edge: {}",
                       demangled(abi::__cxa_current_exception_type()), e.what());
  } catch (...) {
    text =
        fmt::format("threw {} across the C edge", demangled(abi::__cxa_current_exception_type()));
  }
  throw_fault(text);
}

void throw_fault(const std::string& text) {
  throw Error(Status::kInternal,
              fmt::format("{}: {}; this is a fault of the plugin", describe(t_call), text));
}

void warn_ignored_failure() {
  static std::mutex mutex;
  static std::set<const Identity*> warned;
  std::lock_guard lock(mutex);
  if (!warned.insert(t_call.plugin.get()).second) return;
  log::warning(fmt::format(
      "{}: called host->fail(\"{}\") and then returned FASTLLM_OK; the text is ignored. "
      "This is a fault of the plugin, said once",
      describe(t_call), failure_text()));
}

void log_swallowed() noexcept {
  try {
    try {
      throw;
    } catch (const std::exception& e) {
      log::error(e.what());
    } catch (...) {
      log::error("a plugin threw an unknown exception while it released something");
    }
  } catch (...) {
  }
}

}  // namespace fastllm::plugin
