// Dropout of hidden values, with what is added to them, in one pass. Forward and backward are the
// same function: both multiply element i by factor(i) (kernels/random.hpp).
#pragma once

#include "kernels/random.hpp"

namespace fastllm::gpt {

// out = base + values * factor, all [count]; base null: 0. out may be the memory of either.
void apply_dropout(const Dropout& dropout, int64_t count, const float* values, const float* base,
                   float* out);

}  // namespace fastllm::gpt
