// Swap is left out: who shuffles there waits for days.
#include "core/base/memory_limit.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

namespace fastllm {
namespace {

constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

// The number that a file holds; no such file, or "max": none.
uint64_t limit_in(const std::filesystem::path& file) {
  uint64_t limit = 0;
  return std::ifstream(file) >> limit ? limit : kNone;
}

std::string own_membership() {
  std::ifstream file("/proc/self/cgroup");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

uint64_t control_group_limit(const std::string& membership, const std::filesystem::path& root) {
  uint64_t limit = kNone;
  std::istringstream lines(membership);
  // "0::/user/job" of version 2, "4:memory:/user/job" of version 1. In a container the path may be
  // that outside of it: then the group's own files are those at the top.
  for (std::string number, controllers, path; std::getline(lines, number, ':') &&
                                              std::getline(lines, controllers, ':') &&
                                              std::getline(lines, path);) {
    const bool unified = controllers.empty();
    if (!unified && controllers != "memory") continue;
    const auto top = unified ? root : root / "memory";
    const char* name = unified ? "memory.max" : "memory.limit_in_bytes";
    for (std::filesystem::path group = path; group.has_relative_path(); group = group.parent_path())
      limit = std::min(limit, limit_in(top / group.relative_path() / name));
    limit = std::min(limit, limit_in(top / name));
  }
  return limit;
}

uint64_t memory_limit(int64_t processes) {
  uint64_t shared = control_group_limit(own_membership(), "/sys/fs/cgroup");
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0)
    shared = std::min(shared, uint64_t(pages) * uint64_t(page_bytes));
  uint64_t limit = shared / uint64_t(processes);
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit own{};
    if (::getrlimit(resource, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
      limit = std::min(limit, uint64_t(own.rlim_cur));
  }
  return limit;
}

}  // namespace fastllm
