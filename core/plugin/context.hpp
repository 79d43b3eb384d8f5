// Which plugin call a thread is in: names the plugin, layer and direction in errors, in the log,
// and when the process crashes. Costs a few plain thread-local stores a call. Calls nest (a format
// asks the host, which asks a model).
#pragma once

#include <fastllm/plugin.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"

namespace fastllm::plugin {

// Who is called. Shared by all proxies of a library; outlives every call.
struct Identity {
  std::string id, version, file;
  std::string label;  // "plugin gpt (libfastllm_gpt.so 0.1.0)"
  static std::shared_ptr<const Identity> make(std::string id, std::string version,
                                              std::string file);
};

// Read by other threads (a plugin's own, that log or crash) while this one enters and leaves calls.
class SharedIdentity {
 public:
  constexpr SharedIdentity() = default;
  SharedIdentity(const SharedIdentity& other) noexcept : pointer_(other.get()) {}
  SharedIdentity& operator=(const SharedIdentity& other) noexcept { return *this = other.get(); }
  SharedIdentity& operator=(const Identity* identity) noexcept {
    pointer_.store(identity, std::memory_order_release);  // a plain store on x86
    return *this;
  }
  const Identity* get() const noexcept { return pointer_.load(std::memory_order_acquire); }
  const Identity* operator->() const noexcept { return get(); }
  explicit operator bool() const noexcept { return get() != nullptr; }

 private:
  std::atomic<const Identity*> pointer_{nullptr};
};

// Plain data besides: the crash handler reads it.
struct Call {
  SharedIdentity plugin;         // null: in no plugin
  const char* what = nullptr;    // "forward", "open"
  const char* detail = nullptr;  // what it works on: a path, a tensor's name; or null
  int32_t layer = -1;
  bool host_failed = false;    // a host function left a text in this thread's slot
  bool plugin_failed = false;  // the plugin did, through host->fail
  bool known = false;  // this thread has its alternate stack and is seen by the crash handler
};

inline constinit thread_local Call t_call{};

void enter_thread();  // slow part, once a thread

// Everything between construction and destruction runs in the plugin's name.
class CallScope {
 public:
  CallScope(const Identity& plugin, const char* what, int32_t layer = -1,
            const char* detail = nullptr) noexcept
      : before_(t_call) {
    if (!t_call.known) [[unlikely]] {
      enter_thread();
      before_.known = true;
    }
    t_call.what = what;
    t_call.detail = detail;
    t_call.layer = layer;
    t_call.host_failed = t_call.plugin_failed = false;
    t_call.plugin = &plugin;
  }
  ~CallScope() { t_call = before_; }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  Call before_;
};

// "plugin gpt (libfastllm_gpt.so 0.1.0), layer 7 forward"
std::string describe(const Call& call);

// This thread's failure text. Set by host functions and by host->fail; cleared by the next
// CallScope.
fastllm_status set_failure(int32_t status, std::string_view text, bool by_plugin);

// Within a scope, after a call: whether a text was left, and which.
inline bool failure_given() { return t_call.plugin_failed || t_call.host_failed; }
const std::string& latest_failure();

// Within a scope: throws the Error for a status that is not OK, with everything known in front.
[[noreturn]] void throw_failed_call(fastllm_status status);
// Within a scope and a catch block: the plugin threw across the C edge.
[[noreturn]] void throw_foreign_exception();
// Within a scope: OK was returned although the plugin called host->fail. Warned of once a plugin.
void warn_ignored_failure();
// A promise of the contract that the plugin broke: "<context>: <text>; this is a fault of the
// plugin".
[[noreturn]] void throw_fault(const std::string& text);

// Calls a table's function that returns a status. Site: CallScope's arguments.
template <class... P, class... A>
void call_status(const Identity& plugin, const char* what, int32_t layer, const char* detail,
                 fastllm_status (*function)(P...), A... arguments) {
  CallScope scope(plugin, what, layer, detail);
  fastllm_status status;
  try {
    status = function(arguments...);
  } catch (...) {
    throw_foreign_exception();
  }
  if (status != FASTLLM_OK) [[unlikely]]
    throw_failed_call(status);
  if (t_call.plugin_failed) [[unlikely]]
    warn_ignored_failure();
}

// Calls one that returns a value or nothing.
template <class R, class... P, class... A>
R call_value(const Identity& plugin, const char* what, const char* detail, R (*function)(P...),
             A... arguments) {
  CallScope scope(plugin, what, -1, detail);
  try {
    return function(arguments...);
  } catch (...) {
    throw_foreign_exception();
  }
}

// For destroy, close, discard: nothing leaves, problems are logged.
template <class... P, class... A>
void call_release(const Identity& plugin, const char* what, void (*function)(P...),
                  A... arguments) noexcept;
void log_swallowed() noexcept;  // in a catch block

template <class... P, class... A>
void call_release(const Identity& plugin, const char* what, void (*function)(P...),
                  A... arguments) noexcept {
  try {
    call_value(plugin, what, nullptr, function, arguments...);
  } catch (...) {
    log_swallowed();
  }
}

}  // namespace fastllm::plugin
