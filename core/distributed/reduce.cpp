#include "core/distributed/reduce.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/clones.hpp"
#include "core/base/half.hpp"

namespace fastllm::distributed {
namespace {

// Elements that are summed up in cache before they are written once.
constexpr int64_t kBlock = 4096;
constexpr int64_t kWorthThreads = 1 << 16;  // elements

struct Identity {
  template <class T>
  static T read(T value) {
    return value;
  }
};
struct Bfloat16 {
  static float read(uint16_t bits) { return from_bfloat16(bits); }
  static uint16_t write(float value) { return to_bfloat16(value); }
};
struct Float16 {
  static float read(uint16_t bits) { return from_float16(bits); }
  static uint16_t write(float value) { return to_float16(value); }
};

template <class Codec, class Stored, class Sum>
inline __attribute__((always_inline)) void add_block(const Stored* term, Reduce op, int64_t n,
                                                     bool first, Sum* sum) {
  if (first) {
    for (int64_t i = 0; i < n; ++i) sum[i] = Codec::read(term[i]);
  } else if (op == Reduce::kMax) {
    // What is no number wins, so that it shows on every rank.
    for (int64_t i = 0; i < n; ++i) {
      const Sum value = Codec::read(term[i]);
      sum[i] = value > sum[i] || value != value ? value : sum[i];
    }
  } else {
    for (int64_t i = 0; i < n; ++i) sum[i] = Sum(sum[i] + Codec::read(term[i]));
  }
}

// The sum of elements [begin, begin + n) into `sum`.
template <class Codec, class Stored, class Sum>
inline __attribute__((always_inline)) void sum_block(std::span<const void* const> terms, Reduce op,
                                                     int64_t begin, int64_t n, Sum* sum) {
  for (size_t k = 0; k < terms.size(); ++k)
    add_block<Codec>(static_cast<const Stored*>(terms[k]) + begin, op, n, k == 0, sum);
  if (op == Reduce::kMean) {
    const Sum count = Sum(terms.size());
    for (int64_t i = 0; i < n; ++i) sum[i] = Sum(sum[i] / count);
  }
}

FASTLLM_CLONES void block_float32(std::span<const void* const> terms, Reduce op, int64_t begin,
                                  int64_t n, float* out) {
  alignas(64) float sum[kBlock];
  sum_block<Identity, float>(terms, op, begin, n, sum);
  std::memcpy(out + begin, sum, size_t(n) * sizeof(float));
}

template <class Codec>
inline __attribute__((always_inline)) void block_half(std::span<const void* const> terms, Reduce op,
                                                      int64_t begin, int64_t n, void* out,
                                                      bool to_float32) {
  alignas(64) float sum[kBlock];
  sum_block<Codec, uint16_t>(terms, op, begin, n, sum);
  if (to_float32) {
    std::memcpy(static_cast<float*>(out) + begin, sum, size_t(n) * sizeof(float));
  } else {
    uint16_t* const narrow = static_cast<uint16_t*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) narrow[i] = Codec::write(sum[i]);
  }
}

FASTLLM_CLONES void block_bfloat16(std::span<const void* const> terms, Reduce op, int64_t begin,
                                   int64_t n, void* out, bool to_float32) {
  block_half<Bfloat16>(terms, op, begin, n, out, to_float32);
}

FASTLLM_CLONES void block_float16(std::span<const void* const> terms, Reduce op, int64_t begin,
                                  int64_t n, void* out, bool to_float32) {
  block_half<Float16>(terms, op, begin, n, out, to_float32);
}

template <class T>
void block_integers(std::span<const void* const> terms, Reduce op, int64_t begin, int64_t n,
                    void* out) {
  T sum[kBlock];
  sum_block<Identity, T>(terms, op, begin, n, sum);
  std::memcpy(static_cast<T*>(out) + begin, sum, size_t(n) * sizeof(T));
}

}  // namespace

void reduce_terms(std::span<const void* const> terms, DLDataType type, Reduce op,
                  const Memory& out) {
  const bool wide = is_float32(out.type);
#pragma omp parallel for schedule(static) if (out.count >= kWorthThreads)
  for (int64_t begin = 0; begin < out.count; begin += kBlock) {
    const int64_t n = std::min(kBlock, out.count - begin);
    if (is_float32(type)) {
      block_float32(terms, op, begin, n, static_cast<float*>(out.data));
    } else if (same_dtype(type, kBfloat16)) {
      block_bfloat16(terms, op, begin, n, out.data, wide);
    } else if (same_dtype(type, kFloat16)) {
      block_float16(terms, op, begin, n, out.data, wide);
    } else if (same_dtype(type, kInt64)) {
      block_integers<int64_t>(terms, op, begin, n, out.data);
    } else {
      block_integers<uint8_t>(terms, op, begin, n, out.data);
    }
  }
}

}  // namespace fastllm::distributed
