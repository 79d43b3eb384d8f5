// What the device kernels share: elements of any type in packs of 16 bytes, sums over warps and
// blocks whose order is fixed, and launching.
//
// Sums over a warp follow the butterfly of shuffles, so that all lanes hold the same bits (CUDA C++
// Programming Guide, warp shuffle functions; Harris, "Optimizing parallel reduction in CUDA", 2007).
#pragma once

#include <fastllm/plugin.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "kernels/cuda/kernels.hpp"

namespace fastllm::gpt::cuda {
namespace common {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// ---------------------------------------------------------------- elements

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float to_float(__half value) { return __half2float(value); }
// Rounds to nearest, ties to even, as on the processor.
template <class Element>
__device__ inline Element from_float(float value) {
  if constexpr (std::is_same_v<Element, float>)
    return value;
  else if constexpr (std::is_same_v<Element, __nv_bfloat16>)
    return __float2bfloat16_rn(value);
  else
    return __float2half_rn(value);
}

// Elements that one instruction loads.
template <class Element, int kCount>
struct alignas(std::min<size_t>(16, sizeof(Element) * kCount)) Pack {
  Element at[kCount];
};
template <class Element>
constexpr int kPack = 16 / int(sizeof(Element));

template <int kCount, class Element>
__device__ inline void load(const Element* from, float (&values)[kCount]) {
  const auto pack = *reinterpret_cast<const Pack<Element, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = to_float(pack.at[i]);
}
template <int kCount, class Element>
__device__ inline void store(Element* to, const float (&values)[kCount]) {
  Pack<Element, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.at[i] = from_float<Element>(values[i]);
  *reinterpret_cast<Pack<Element, kCount>*>(to) = pack;
}

// Whether packs may be used: pointers (null ones count for nothing) and steps between what is loaded.
template <class Element>
bool packable(std::initializer_list<const void*> pointers, std::initializer_list<int64_t> steps) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }) &&
         std::all_of(steps.begin(), steps.end(),
                     [](int64_t step) { return step % kPack<Element> == 0; });
}
// Calls with the number of elements to load at once.
template <class Element, class Body>
void with_packs(bool packs, Body&& body) {
  if (packs)
    body(std::integral_constant<int, kPack<Element>>());
  else
    body(std::integral_constant<int, 1>());
}

// A row, divided over the threads of a block: each keeps its first kKept packs in registers, so that
// several passes read memory once; those of longer rows are read again, which the cache answers.
template <class Element, int kCount, int kKept>
class Row {
 public:
  __device__ Row(const Element* row, int columns) : row_(row), columns_(columns) {
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (column(k) < columns_) load<kCount>(row_ + column(k), kept_[k]);
  }
  // visit(column, values, k) for each pack; k: of kKept, or kKept for all further ones.
  template <class Visit>
  __device__ void each(Visit&& visit) const {
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (column(k) < columns_) visit(column(k), kept_[k], k);
    for (int at = column(kKept); at < columns_; at += int(blockDim.x) * kCount) {
      float values[kCount];
      load<kCount>(row_ + at, values);
      visit(at, values, kKept);
    }
  }
  // What `each` gives for that column of another row.
  __device__ void at(int column, int k, float (&values)[kCount]) const {
    if (k < kKept) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = kept_[k][i];
    } else {
      load<kCount>(row_ + column, values);
    }
  }

 private:
  __device__ static int column(int k) { return (k * int(blockDim.x) + int(threadIdx.x)) * kCount; }
  const Element* row_;
  int columns_;
  float kept_[kKept][kCount];
};
// Threads for rows of so many columns: whole warps, at most `most`.
inline int threads_for(int64_t columns, int packs_kept, int most) {
  const int64_t wanted = (columns + packs_kept - 1) / packs_kept;
  return int(std::clamp<int64_t>((wanted + kWarp - 1) / kWarp * kWarp, kWarp, most));
}

// ---------------------------------------------------------------- sums

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

template <class T, class Operation>
__device__ inline T over_warp(T value, Operation operation) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = operation(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}
// Over a block of whole warps; every thread gets the result. All threads of the block call it.
template <class T, class Operation>
__device__ inline T over_block(T value, Operation operation, T neutral) {
  __shared__ T of_warps[kWarp];
  value = over_warp(value, operation);
  if (blockDim.x == kWarp) return value;
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  __syncthreads();  // the last call's results have been read
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return over_warp(lane < int(blockDim.x) / kWarp ? of_warps[lane] : neutral, operation);
}
__device__ inline float block_sum(float value) { return over_block(value, Plus(), 0.0f); }
__device__ inline double block_sum(double value) { return over_block(value, Plus(), 0.0); }

// ---------------------------------------------------------------- launching

// After each launch: what was wrong with it.
inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    sdk::fail(FASTLLM_INTERNAL, std::string("expected the CUDA kernel ") + kernel +
                                    " to start, found " + cudaGetErrorName(error) + " (" +
                                    cudaGetErrorString(error) + "); an earlier call may have " +
                                    "caused it: CUDA_LAUNCH_BLOCKING=1 tells which");
}

// For each type of element.
#define FASTLLM_FOR_ELEMENTS(INSTANTIATE) \
  INSTANTIATE(float)                      \
  INSTANTIATE(__nv_bfloat16)              \
  INSTANTIATE(__half)

}  // namespace common
using namespace common;
}  // namespace fastllm::gpt::cuda
