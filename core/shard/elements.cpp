// One loop per pair of types, each compiled for several instruction sets: types are told apart once
// a chunk, and the conversions (core/base/half.hpp) are inlined into the loop.
#include "core/shard/elements.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/base/clones.hpp"
#include "core/base/error.hpp"
#include "core/base/half.hpp"
#include "core/base/tensor.hpp"

#define FASTLLM_INLINE inline __attribute__((always_inline))

namespace fastllm::shard {
namespace {

constexpr int64_t kChunk = int64_t(1) << 16;  // elements a thread takes at once

template <typename Body>
void in_chunks(int64_t n, Body&& body) {
  const int64_t chunks = (n + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t begin = c * kChunk;
    body(begin, std::min(n, begin + kChunk) - begin);
  }
}

struct Float32 {
  using Stored = float;
  static FASTLLM_INLINE float load(float stored) { return stored; }
  static FASTLLM_INLINE float store(float value) { return value; }
};
struct Bfloat16 {
  using Stored = uint16_t;
  static FASTLLM_INLINE float load(uint16_t stored) { return from_bfloat16(stored); }
  static FASTLLM_INLINE uint16_t store(float value) { return to_bfloat16(value); }
};
struct Float16 {
  using Stored = uint16_t;
  static FASTLLM_INLINE float load(uint16_t stored) { return from_float16(stored); }
  static FASTLLM_INLINE uint16_t store(float value) { return to_float16(value); }
};

enum class Kind { kFloat32, kBfloat16, kFloat16 };

Kind kind_of(DLDataType type) {
  FASTLLM_ASSERT(is_compute_dtype(type));
  return type.code == kDLBfloat ? Kind::kBfloat16
         : type.bits == 16      ? Kind::kFloat16
                                : Kind::kFloat32;
}

template <class To, class From>
FASTLLM_INLINE void run(bool add, void* to_bytes, const void* from_bytes, int64_t n) {
  auto* __restrict to = static_cast<typename To::Stored*>(to_bytes);
  const auto* __restrict from = static_cast<const typename From::Stored*>(from_bytes);
  if (add) {
    for (int64_t i = 0; i < n; ++i) to[i] = To::store(To::load(to[i]) + From::load(from[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = To::store(From::load(from[i]));
  }
}

template <class To>
FASTLLM_INLINE void run_to(bool add, void* to, Kind from_kind, const void* from, int64_t n) {
  switch (from_kind) {
    case Kind::kFloat32:
      return run<To, Float32>(add, to, from, n);
    case Kind::kBfloat16:
      return run<To, Bfloat16>(add, to, from, n);
    case Kind::kFloat16:
      return run<To, Float16>(add, to, from, n);
  }
}

FASTLLM_CLONES void run_any(bool add, Kind to_kind, void* to, Kind from_kind, const void* from,
                            int64_t n) {
  switch (to_kind) {
    case Kind::kFloat32:
      return run_to<Float32>(add, to, from_kind, from, n);
    case Kind::kBfloat16:
      return run_to<Bfloat16>(add, to, from_kind, from, n);
    case Kind::kFloat16:
      return run_to<Float16>(add, to, from_kind, from, n);
  }
}

void run_chunks(bool add, void* to, DLDataType to_type, const void* from, DLDataType from_type,
                int64_t n) {
  const Kind to_kind = kind_of(to_type), from_kind = kind_of(from_type);
  const int64_t to_size = to_type.bits / 8, from_size = from_type.bits / 8;
  in_chunks(n, [=](int64_t begin, int64_t count) {
    std::byte* const t = static_cast<std::byte*>(to) + begin * to_size;
    const std::byte* const f = static_cast<const std::byte*>(from) + begin * from_size;
    if (!add && to_kind == from_kind)
      std::memcpy(t, f, size_t(count * to_size));
    else
      run_any(add, to_kind, t, from_kind, f, count);
  });
}

}  // namespace

void copy(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n) {
  run_chunks(false, to, to_type, from, from_type, n);
}

void add(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n) {
  run_chunks(true, to, to_type, from, from_type, n);
}

void fill_zero(void* to, DLDataType type, int64_t n) {
  const int64_t size = type.bits / 8;
  in_chunks(n, [=](int64_t begin, int64_t count) {
    std::memset(static_cast<std::byte*>(to) + begin * size, 0, size_t(count * size));
  });
}

}  // namespace fastllm::shard
