// 16-bit floating-point numbers as bit patterns, to and from float32. Without branches, so that
// loops over them vectorise on any machine. Narrowing rounds to nearest, ties to even, as IEEE 754
// and LibTorch do; every NaN becomes the quiet one.
#pragma once

#include <bit>
#include <cstdint>

namespace fastllm {

// bfloat16: the upper half of a float32.
inline __attribute__((always_inline)) float from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}
inline __attribute__((always_inline)) uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;  // may carry into infinity
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// float16: 1 sign, 5 exponent (bias 15) and 10 mantissa bits; the smallest is 2^-24, the largest
// 65504.
inline __attribute__((always_inline)) float from_float16(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t shifted = uint32_t(bits & 0x7fffu) << 13;  // exponent and mantissa in place
  const uint32_t normal = shifted + (112u << 23);           // 127 - 15
  const uint32_t special = shifted + (224u << 23);          // infinity and NaN keep all ones
  // A subnormal is its mantissa times 2^-24: put it under an exponent and take that away again.
  const float subnormal =
      std::bit_cast<float>(shifted + (113u << 23)) - std::bit_cast<float>(113u << 23);
  const uint32_t magnitude = shifted >= (31u << 23) ? special
                             : shifted < (1u << 23) ? std::bit_cast<uint32_t>(subnormal)
                                                    : normal;
  return std::bit_cast<float>(sign | magnitude);
}
inline __attribute__((always_inline)) uint16_t to_float16(float value) {
  const uint32_t all = std::bit_cast<uint32_t>(value), bits = all & 0x7fffffffu;
  const uint32_t sign = all >> 16 & 0x8000u;
  const uint32_t normal = (bits - (112u << 23) + 0xfffu + (bits >> 13 & 1u)) >> 13;
  // Below 2^-14: next to 0.5 a float32 steps by 2^-24, so the addition rounds.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t finite = bits < 0x38800000u ? subnormal : normal;
  const uint32_t special = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;  // from 65520 on: infinity
  return uint16_t(sign | (bits >= 0x477ff000u ? special : finite));
}

}  // namespace fastllm
