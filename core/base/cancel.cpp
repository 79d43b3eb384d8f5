#include "core/base/cancel.hpp"

#include <signal.h>
#include <string.h>

namespace fastllm {

std::atomic<int>& stop_signal() {
  static std::atomic<int> flag{0};
  static_assert(std::atomic<int>::is_always_lock_free);
  return flag;
}

std::string signal_name(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name ? std::string("SIG") + name : std::to_string(number);
}

namespace {
std::atomic<int>* g_flag = nullptr;  // made before the handler can run

extern "C" void on_stop_signal(int number) {
  if (g_flag->exchange(number) == 0) return;
  ::signal(number, SIG_DFL);
  ::raise(number);
}
}  // namespace

void install_stop_handlers() {
  g_flag = &stop_signal();
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace fastllm
