// Signal handlers that name the plugin, or the file that shrank. Between signal and writev: no allocation, no lock, no
// stdio; everything printed was made before.
#include "core/plugin/crash.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/base/mapped_files.hpp"

namespace fastllm::plugin {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr size_t kStackBytes = 64 << 10;
constexpr int kExitByPlugin = 70;  // EX_SOFTWARE
constexpr int kExitByError = 1;    // as after any other error

struct sigaction g_before[NSIG];

// Threads that have called a plugin. A fixed array, because a signal handler walks it.
constexpr int kMaxThreads = 256;
std::atomic<const Call*> g_threads[kMaxThreads];
// Held while a thread leaves the array, and while another one looks into its call.
std::mutex& threads_mutex() {
  static auto* mutex = new std::mutex;  // threads may end while the process does
  return *mutex;
}

class ThreadEntry {
 public:
  ~ThreadEntry() {
    if (slot_) {
      std::lock_guard lock(threads_mutex());
      slot_->store(nullptr);
    }
    if (stack_ == MAP_FAILED) return;
    stack_t off{};
    off.ss_flags = SS_DISABLE;
    ::sigaltstack(&off, nullptr);
    ::munmap(stack_, kStackBytes);
  }
  void enter(const Call* call) {
    for (auto& slot : g_threads) {
      const Call* empty = nullptr;
      if (!slot.compare_exchange_strong(empty, call)) continue;
      slot_ = &slot;
      break;
    }
    stack_t current{};
    if (::sigaltstack(nullptr, &current) == 0 && !(current.ss_flags & SS_DISABLE))
      return;  // a sanitizer's
    stack_ =
        ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack_ == MAP_FAILED) return;
    stack_t ours{};
    ours.ss_sp = stack_;
    ours.ss_size = kStackBytes;
    ::sigaltstack(&ours, nullptr);
  }

 private:
  std::atomic<const Call*>* slot_ = nullptr;
  void* stack_ = MAP_FAILED;
};

// Collects pieces of text for one writev, so that lines of several ranks do not mix. No allocation,
// no locks.
class Line {
 public:
  void add(const char* text) {
    if (count_ == kMaxPieces) return;
    pieces_[count_].iov_base = const_cast<char*>(text);
    pieces_[count_++].iov_len = std::strlen(text);
  }
  void add_number(int64_t value) {
    char* end = digits_ + sizeof digits_ - 1 - used_;
    char* at = end;
    *at = '\0';
    do {
      *--at = char('0' + value % 10);
      value /= 10;
    } while (value > 0 && at > digits_ + 1);
    used_ += size_t(end - at) + 1;
    add(at);
  }
  void add_call(const Call& call) {
    add(call.plugin->label.c_str());
    add(", ");
    if (call.layer >= 0) {
      add("layer ");
      add_number(call.layer);
      add(" ");
    }
    add(call.what);
    if (call.detail && *call.detail) {
      add(" ");
      add(call.detail);
    }
    add(": ");
  }
  void write() {
    add("\n");
    [[maybe_unused]] auto ignored = ::writev(STDERR_FILENO, pieces_, count_);
  }

 private:
  static constexpr int kMaxPieces = 24;
  iovec pieces_[kMaxPieces];
  int count_ = 0;
  char digits_[64];
  size_t used_ = 0;
};

const char* signal_text(int number) {
  switch (number) {
    case SIGSEGV:
      return "touched memory that it may not (SIGSEGV)";
    case SIGBUS:
      return "touched memory that is not there (SIGBUS)";
    case SIGFPE:
      return "made an arithmetic error, for example an integer division by zero (SIGFPE)";
    case SIGILL:
      return "ran an instruction that this processor lacks (SIGILL)";
    case SIGABRT:
      return "aborted (SIGABRT)";
    default:
      return "was killed by a signal";
  }
}

// A data set that became shorter while it was read is no plugin's fault.
void end_at_missing_data(const char* path) {
  Line line;
  line.add("error: expected ");
  line.add(path);
  line.add(
      " to stay as it was when it was opened, found it shorter while it was read; write data sets "
      "under new names instead of over those in use, and go on from the last checkpoint");
  line.write();
  std::_Exit(kExitByError);
}

void on_crash(int number, siginfo_t* info, void*) {
  if (const char* path = number == SIGBUS ? mapped_file_at(info->si_addr) : nullptr)
    end_at_missing_data(path);
  const Call* call = t_call.plugin ? &t_call : find_active_call();
  if (call) {
    Line line;
    line.add_call(*call);
    line.add(signal_text(number));
    if (call != &t_call) line.add(" or another thread did meanwhile");
    line.add("; this is a fault of the plugin or of what it was given, and the process ends here");
    line.write();
  }
  // Back to what was there before; the signal is blocked in here and arrives again on return.
  ::sigaction(number, &g_before[number], nullptr);
  ::raise(number);
}

// Runs on the thread that called exit().
void on_exit_in_plugin() {
  if (!t_call.plugin) return;
  Line line;
  line.add_call(t_call);
  line.add("called exit(), which ends the host without saving; this is a fault of the plugin");
  line.write();
  std::_Exit(kExitByPlugin);
}

}  // namespace

void install_crash_handlers() {
  static const bool once = [] {
    struct sigaction action {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int number : kSignals) ::sigaction(number, &action, &g_before[number]);
    std::atexit(on_exit_in_plugin);
    return true;
  }();
  (void)once;
}

void register_crash_thread(const Call* call) {
  static thread_local ThreadEntry entry;
  entry.enter(call);
}

std::string active_plugin_id() {
  if (t_call.plugin) return t_call.plugin->id;
  std::lock_guard lock(threads_mutex());
  for (const auto& slot : g_threads) {
    const Call* call = slot.load(std::memory_order_relaxed);
    if (!call) continue;
    if (const Identity* plugin = call->plugin.get()) return plugin->id;
  }
  return "";
}

const Call* find_active_call() {
  for (const auto& slot : g_threads) {
    const Call* call = slot.load(std::memory_order_relaxed);
    if (call && call->plugin) return call;
  }
  return nullptr;
}

}  // namespace fastllm::plugin
