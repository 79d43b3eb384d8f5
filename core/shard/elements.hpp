// Passes over arrays of float32, bfloat16 or float16, each by several threads and with vectors.
// Arithmetic is in float32 and rounded once, to nearest even, when stored. Results do not depend on
// the number of threads. Ranges do not overlap; small ones stay on this thread.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>

namespace fastllm::shard {

// to[i] = from[i].
void copy(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n);
// to[i] += from[i].
void add(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n);
// to[i] = 0.
void fill_zero(void* to, DLDataType type, int64_t n);

}  // namespace fastllm::shard
