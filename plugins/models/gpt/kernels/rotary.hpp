// Turns pairs of a head's elements by an angle that depends on the position.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

struct RotaryShape {
  int64_t tokens, heads, head_width;
  int64_t stride;    // elements from one token to the next in the rotated memory
  bool interleaved;  // a pair is elements 2i, 2i + 1; otherwise i, i + head_width / 2
};

// In place. table [positions, head_width]: cosines of the pairs, then sines, which may share a
// factor. backward: turns the other way, which makes the gradient of the input.
void rotate(const RotaryShape& shape, const float* table, const int64_t* positions, bool backward,
            float* values);

}  // namespace fastllm::gpt
