// How much memory this process can ever have: for refusing what clearly does not fit before it is allocated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fastllm {

// Bytes. What `processes` equal ones have to share, its part: the computer's memory, or the limit of
// the control group (of a container, of a job); or the limit of this process alone (ulimit -v, -d)
// when that is less.
uint64_t memory_limit(int64_t processes = 1);

// The lowest limit of a control group and those around it, versions 1 and 2; none: the largest
// number. membership: what /proc/self/cgroup holds; root: where control groups are mounted.
uint64_t control_group_limit(const std::string& membership, const std::filesystem::path& root);

}  // namespace fastllm
