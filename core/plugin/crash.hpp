// One line that names plugin, layer and direction when the process dies inside a plugin: SIGSEGV,
// SIGBUS, SIGFPE, SIGILL, SIGABRT, and exit() called by a plugin. Afterwards the signal takes its
// usual course, so exit codes and core dumps stay.
#pragma once

#include "core/plugin/context.hpp"

namespace fastllm::plugin {

// Once a process; before the first library is opened. What handled these signals before is asked
// afterwards.
void install_crash_handlers();

// Gives this thread an alternate stack (a plugin may have used up the other one) and lets other
// threads' crashes see its call. `call` lives as long as the thread, which takes itself off the
// list when it ends.
void register_crash_thread(const Call* call);

// A call that some thread is in; null: none. Async-signal-safe, so it takes no lock: only for a
// process that is dying, since the thread may end meanwhile.
const Call* find_active_call();

// Id of the plugin that this thread, or else any thread, is in a call of; "": none.
std::string active_plugin_id();

}  // namespace fastllm::plugin
