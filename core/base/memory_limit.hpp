// How much memory this process can ever have: for refusing what clearly does not fit before it is allocated.
#pragma once

#include <cstdint>

namespace fastllm {

// Bytes: the computer's memory, or the limit of this process (ulimit -v, -d) when that is less.
uint64_t memory_limit();

}  // namespace fastllm
