// Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", 2011). Element i of a stream depends on (key, i) alone, so any
// thread may fill any part. No libm: logarithm, sine and cosine are our own polynomials, so the
// same bits come out on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fastllm::train {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// splitmix64's finalizer and one whole step of it (Steele, Lea & Flood 2014): every input bit reaches every output bit.
uint64_t mix(uint64_t x);
uint64_t splitmix(uint64_t x);

// The stream of one parameter: seed and name, well mixed.
uint64_t stream_key(uint64_t seed, std::string_view name);

// out[k] = element first + k of the stream, for k in [0, count).
void fill_normal(float* out, int64_t first, int64_t count, uint64_t key, float mean,
                 float deviation);
void fill_uniform(float* out, int64_t first, int64_t count, uint64_t key, float low,
                  float high);  // [low, high)

}  // namespace fastllm::train
