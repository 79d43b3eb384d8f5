// The table every plugin receives (fastllm_host): failure texts, log, memory, configuration, and
// further tables by id. Its functions throw nothing and touch no plugin code; they may be called
// from any thread where plugin.h says [any].
#pragma once

#include <fastllm/plugin.h>

#include <exception>
#include <new>

#include "core/base/error.hpp"
#include "core/plugin/context.hpp"

namespace fastllm::plugin {

// One for the process.
const fastllm_host* host_table();

// Makes a table available to plugins under an id ("fastllm.stages/0"); null takes it away. The
// table stays alive and unchanged meanwhile. Any thread; before plugins ask for it.
void offer(const char* id, const void* table);

// Wraps the body of a function that plugins call: an exception becomes a status, its text this
// thread's failure text.
template <class Body>
fastllm_status host_function(Body&& body) noexcept {
  try {
    body();
    return FASTLLM_OK;
  } catch (const Error& e) {
    return set_failure(fastllm_status(e.status()), e.what(), false);
  } catch (const std::bad_alloc&) {
    return set_failure(FASTLLM_OUT_OF_MEMORY, "out of memory in the host", false);
  } catch (const std::exception& e) {
    return set_failure(FASTLLM_INTERNAL, e.what(), false);
  } catch (...) {
    return set_failure(FASTLLM_INTERNAL, "unknown exception in the host", false);
  }
}

}  // namespace fastllm::plugin
