// The rotary embedding as its formula says, in double precision: what ours is compared with.
#pragma once

#include <ATen/ATen.h>

#include "config.hpp"

namespace fastllm::gpt::testing {

// Of each pair, in radians a position.
at::Tensor plain_frequencies(const GptConfig& c);

// x [batch, heads, sequence, width], positions [batch, sequence].
at::Tensor plain_rotary(const GptConfig& c, const at::Tensor& x, const at::Tensor& positions);

}  // namespace fastllm::gpt::testing
