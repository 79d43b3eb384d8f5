// host->alloc: memory like a given tensor. CPU only so far; blocks are kept and reused, since large
// ones are costly to map.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>

namespace fastllm::plugin {

fastllm_status alloc_service(const DLTensor* like, void* stream, DLManagedTensorVersioned** out);

// Bytes a tensor of this kind takes, rows packed; throws Error on an unknown type, a negative
// dimension, or overflow.
uint64_t tensor_bytes(const DLTensor& tensor);

// Bytes kept for reuse; and giving them back.
uint64_t cached_bytes();
void release_cached_memory();

}  // namespace fastllm::plugin
