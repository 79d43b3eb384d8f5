// What the hand-written loops share: plain C++ over float pointers that the compiler vectorises, no
// tensors. FASTLLM_KERNEL builds a function twice, for AVX2 and for any x86-64, and the loader
// picks. (The level x86-64-v3 is AVX2 and FMA on any processor; arch=haswell would be that processor
// alone.) Sums use `omp simd`, whose order is fixed at compile time, and never cross a boundary that
// depends on the number of threads: the same bits every time on one machine.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define FASTLLM_KERNEL __attribute__((target_clones("arch=x86-64-v3", "default")))
#define FASTLLM_KERNEL_LEVELS  // a file may build functions for a level and choose by itself
#else
#define FASTLLM_KERNEL
#endif
#define FASTLLM_INLINE inline __attribute__((always_inline))

namespace fastllm::gpt {

// Least work worth a thread: rows of a few hundred elements, and columns or elements one by one.
constexpr int64_t kRowGrain = 16;
constexpr int64_t kColumnGrain = 256;
constexpr int64_t kElementGrain = 1 << 14;

// e^x without branches or calls, so that loops over it vectorise: 2^n times a polynomial on [-ln 2
// / 2, ln 2 / 2]. Relative error below 2e-7 for x in [-87, 88]; clamped outside.
FASTLLM_INLINE float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted =
      x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer in the low bits
  const int32_t n = std::bit_cast<int32_t>(shifted) - 0x4B400000;
  const float whole = shifted - 12582912.0f;
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * std::bit_cast<float>((n + 127) << 23);
}
FASTLLM_INLINE float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

}  // namespace fastllm::gpt
