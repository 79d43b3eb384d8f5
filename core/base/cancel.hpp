// The one flag that says "finish soon": set by SIGINT and SIGTERM, read by long loops and by plugins (host->cancelled).
#pragma once

#include <atomic>
#include <string>

namespace fastllm {

// The number of the signal that asked to stop; 0: none. Lock-free, so a signal handler may set it.
std::atomic<int>& stop_signal();
inline bool stop_requested() { return stop_signal().load(std::memory_order_relaxed) != 0; }

std::string signal_name(int number);  // "SIGTERM"

// First SIGINT or SIGTERM sets the flag; the second restores the default action and re-raises, ending at once.
void install_stop_handlers();

}  // namespace fastllm
