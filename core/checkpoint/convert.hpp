// Element types of stored tensors, widened or narrowed to float32. A value is rounded at most once.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>

namespace fastllm::checkpoint {

bool can_convert_to_float32(DLDataType from);
// from: float64, float32, float16 or bfloat16 in host memory.
void convert_to_float32(const void* from, DLDataType type, int64_t count, float* to);

}  // namespace fastllm::checkpoint
