// Element-wise sums, maxima and means of several arrays, in their order.
#pragma once

#include <span>

#include "core/distributed/communicator.hpp"

namespace fastllm::distributed {

// terms: arrays of out.count elements of that type; out's type is the same, or float32 for a 16-bit
// one. out may be one of the terms.
void reduce_terms(std::span<const void* const> terms, DLDataType type, Reduce op,
                  const Memory& out);

}  // namespace fastllm::distributed
