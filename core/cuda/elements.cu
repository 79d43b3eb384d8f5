// A thread takes eight neighbours: one load and one store of 16 bytes where both types have 16 bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <type_traits>

#include "core/base/error.hpp"
#include "core/base/tensor.hpp"
#include "core/cuda/elements.hpp"
#include "core/cuda/error.hpp"

namespace fastllm::cuda {
namespace {

constexpr int kThreads = 256, kEach = 8;

template <class T>
__device__ float to_float(T value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else if constexpr (std::is_same_v<T, __half>)
    return __half2float(value);
  else
    return __bfloat162float(value);
}
template <class T>
__device__ T from_float(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(value);
  else
    return __float2bfloat16_rn(value);
}

template <bool kAdd, class To, class From>
__device__ To combine(To to, From from) {
  if constexpr (kAdd) return from_float<To>(to_float(to) + to_float(from));
  return from_float<To>(to_float(from));
}

template <class T>
struct alignas(16) Eight {
  T at[kEach];
};

// packs: pointers are aligned to 16 bytes.
template <class To, class From, bool kAdd>
__global__ __launch_bounds__(kThreads) void run(To* to, const From* from, int64_t n, bool packs) {
  const int64_t begin = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (packs && begin + kEach <= n) {
    const auto read = *reinterpret_cast<const Eight<From>*>(from + begin);
    Eight<To> result;
    if constexpr (kAdd) result = *reinterpret_cast<const Eight<To>*>(to + begin);
#pragma unroll
    for (int i = 0; i < kEach; ++i) result.at[i] = combine<kAdd>(result.at[i], read.at[i]);
    *reinterpret_cast<Eight<To>*>(to + begin) = result;
  } else {
    for (int64_t i = begin; i < min(begin + kEach, n); ++i) to[i] = combine<kAdd>(to[i], from[i]);
  }
}

template <class Body>
void with_type(DLDataType type, Body&& body) {
  FASTLLM_ASSERT(is_compute_dtype(type));
  if (type.code == kDLBfloat)
    body(__nv_bfloat16());
  else if (type.bits == 16)
    body(__half());
  else
    body(float());
}

template <bool kAdd>
void launch(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n,
            cudaStream_t stream) {
  if (n == 0) return;
  const bool packs =
      (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0;
  const unsigned blocks = unsigned((n + kThreads * kEach - 1) / (kThreads * kEach));
  with_type(to_type, [&](auto to_zero) {
    with_type(from_type, [&](auto from_zero) {
      using To = decltype(to_zero);
      using From = decltype(from_zero);
      run<To, From, kAdd><<<blocks, kThreads, 0, stream>>>(
          static_cast<To*>(to), static_cast<const From*>(from), n, packs);
    });
  });
  check(cudaGetLastError(),
        kAdd ? "the CUDA kernel add to start" : "the CUDA kernel copy to start");
}

}  // namespace

void copy(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n,
          cudaStream_t stream) {
  if (!same_dtype(to_type, from_type))
    return launch<false>(to, to_type, from, from_type, n, stream);
  check(cudaMemcpyAsync(to, from, size_t(n * (to_type.bits / 8)), cudaMemcpyDeviceToDevice, stream),
        "a copy on a CUDA device");
}

void add(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n,
         cudaStream_t stream) {
  launch<true>(to, to_type, from, from_type, n, stream);
}

void fill_zero(void* to, DLDataType type, int64_t n, cudaStream_t stream) {
  check(cudaMemsetAsync(to, 0, size_t(n * (type.bits / 8)), stream), "zeros on a CUDA device");
}

}  // namespace fastllm::cuda
