// Blocks of 64 numbers, computed lane by lane in arrays that the compiler turns into vector code.
// Compiled without contraction of a * b + c, so that every instruction set gives the same bits.
#include "core/train/executor/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/clones.hpp"

namespace fastllm::train {
namespace {

constexpr int kLanes = 16;          // Philox counters at once
constexpr int kBlock = 4 * kLanes;  // numbers of them
constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9,
                   kWeyl1 = 0xBB67AE85;

// Words w of counters first .. first + 15; the counter's upper half is 0.
inline __attribute__((always_inline)) void philox_block(uint32_t (&x)[4][kLanes], uint64_t first,
                                                        uint64_t key) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int i = 0; i < kLanes; ++i) {
    x[0][i] = uint32_t(first + i);
    x[1][i] = uint32_t((first + i) >> 32);
    x[2][i] = x[3][i] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t p0 = uint64_t(kMultiplier0) * x[0][i], p1 = uint64_t(kMultiplier1) * x[2][i];
      const uint32_t y0 = uint32_t(p1 >> 32) ^ x[1][i] ^ k0, y2 = uint32_t(p0 >> 32) ^ x[3][i] ^ k1;
      x[0][i] = y0;
      x[1][i] = uint32_t(p1);
      x[2][i] = y2;
      x[3][i] = uint32_t(p0);
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
}

// ln of (bits + 1/2) / 2^32, always in (-22.2, 0]. The argument is m * 2^e with m in [sqrt(1/2),
// sqrt(2)), and ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172: the series after s^9 is
// below 1e-9.
inline float log_uniform(uint32_t bits) {
  // float(bits) may round up to 2^32; 32-bit integers convert exactly enough: relative error 2^-24.
  const float u = (float(int32_t(bits >> 1)) + 0.25f) * 0x1p-31f;
  const uint32_t raw = std::bit_cast<uint32_t>(u);
  const int32_t shifted = int32_t(raw - 0x3f3504f3u);  // 0x3f3504f3: sqrt(1/2)
  const int32_t exponent = shifted >> 23;
  const float m = std::bit_cast<float>(uint32_t(raw - (uint32_t(exponent) << 23)));
  const float s = (m - 1.0f) / (m + 1.0f), q = s * s;
  const float series = 2.0f + q * (2.0f / 3 + q * (2.0f / 5 + q * (2.0f / 7 + q * (2.0f / 9))));
  return s * series + float(exponent) * 0.693147180559945309f;
}

// Cosine and sine of 2 pi * bits / 2^32: the nearest quarter turn is taken off, the rest lies
// within [-pi/4, pi/4], where the Taylor polynomials are good to 3e-8, half the spacing of floats
// near 1.
inline void cos_sin_turn(uint32_t bits, float& cosine, float& sine) {
  const uint32_t quarter = (bits + 0x20000000u) >> 30;
  const float x = float(int32_t(bits - (quarter << 30))) * (6.283185307179586f * 0x1p-32f),
              q = x * x;
  const float s =
      x + x * q * (-1.0f / 6 + q * (1.0f / 120 + q * (-1.0f / 5040 + q * (1.0f / 362880))));
  const float c = 1.0f + q * (-1.0f / 2 + q * (1.0f / 24 + q * (-1.0f / 720 + q * (1.0f / 40320))));
  const float swapped_c = quarter & 1 ? s : c, swapped_s = quarter & 1 ? c : s;
  cosine = (quarter + 1) & 2 ? -swapped_c : swapped_c;
  sine = quarter & 2 ? -swapped_s : swapped_s;
}

// Number n of the stream is word n / 16 % 4 of counter n / 64 * 16 + n % 16. Words 0 and 1 of a
// counter make the normal numbers of words 0 and 1 (Box & Muller 1958), words 2 and 3 those of 2
// and 3.
FASTLLM_CLONES void normal_block(float* out, uint64_t block, uint64_t key) {
  uint32_t x[4][kLanes];
  philox_block(x, block * kLanes, key);
  for (int pair = 0; pair < 4; pair += 2)
    for (int i = 0; i < kLanes; ++i) {
      float cosine, sine;
      cos_sin_turn(x[pair + 1][i], cosine, sine);
      const float radius = std::sqrt(-2.0f * log_uniform(x[pair][i]));
      out[pair * kLanes + i] = radius * cosine;
      out[(pair + 1) * kLanes + i] = radius * sine;
    }
}

FASTLLM_CLONES void uniform_block(float* out, uint64_t block, uint64_t key) {
  uint32_t x[4][kLanes];
  philox_block(x, block * kLanes, key);
  for (int w = 0; w < 4; ++w)
    for (int i = 0; i < kLanes; ++i) out[w * kLanes + i] = float(int32_t(x[w][i] >> 8)) * 0x1p-24f;
}

// Any range, from whole blocks that begin at multiples of 64.
template <typename Block, typename Finish>
void fill(float* out, int64_t first, int64_t count, Block&& block, Finish&& finish) {
  float numbers[kBlock];
  for (int64_t done = 0; done < count;) {
    const int64_t at = first + done, skip = at % kBlock, n = std::min(count - done, kBlock - skip);
    block(numbers, uint64_t(at / kBlock));
    for (int64_t i = 0; i < n; ++i) out[done + i] = finish(numbers[skip + i]);
    done += n;
  }
}

}  // namespace

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t splitmix(uint64_t x) { return mix(x + 0x9e3779b97f4a7c15); }

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(kMultiplier0) * c[0], p1 = uint64_t(kMultiplier1) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ key[0], uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ key[1],
         uint32_t(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return c;
}

uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  return mix(splitmix(seed) ^ hash);
}

void fill_normal(float* out, int64_t first, int64_t count, uint64_t key, float mean,
                 float deviation) {
  fill(
      out, first, count, [=](float* numbers, uint64_t block) { normal_block(numbers, block, key); },
      [=](float z) { return mean + deviation * z; });
}

void fill_uniform(float* out, int64_t first, int64_t count, uint64_t key, float low, float high) {
  const float width = high - low, below = std::nextafter(high, low);
  fill(
      out, first, count,
      [=](float* numbers, uint64_t block) { uniform_block(numbers, block, key); },
      [=](float u) {
        return low < high ? std::min(low + width * u, below) : low;
      });  // rounding may reach high
}

}  // namespace fastllm::train
