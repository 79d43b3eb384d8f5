// Swap is left out: who shuffles there waits for days.
#include "core/base/memory_limit.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace fastllm {

uint64_t memory_limit() {
  uint64_t limit = std::numeric_limits<uint64_t>::max();
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) limit = uint64_t(pages) * uint64_t(page_bytes);
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit own{};
    if (::getrlimit(resource, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
      limit = std::min(limit, uint64_t(own.rlim_cur));
  }
  return limit;
}

}  // namespace fastllm
