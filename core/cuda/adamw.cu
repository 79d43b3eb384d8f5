// A block a chunk, so that parameters of any size fill the device. AdamW: Loshchilov & Hutter 2019.
// Each array is read and written once: 16 bytes read and 12 written for an element.
#include "core/cuda/adamw.hpp"
#include "core/cuda/error.hpp"

namespace fastllm::cuda {
namespace {

using optim::AdamWArrays;
using optim::AdamWChunk;
using optim::AdamWFactors;

constexpr int kThreads = 512, kWarp = 32, kFour = 4;

__device__ double over_warp(double value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

__global__ __launch_bounds__(kThreads) void squares_of(const AdamWChunk* chunks, const float* grads,
                                                       double* squares) {
  __shared__ double of_warps[kThreads / kWarp];
  const AdamWChunk chunk = chunks[blockIdx.x];
  const float* const g = grads + chunk.state_begin;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < chunk.elements; i += kThreads)
    sum += double(g[i]) * double(g[i]);
  sum = over_warp(sum);
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  if (lane == 0) of_warps[warp] = sum;
  __syncthreads();
  if (warp != 0) return;
  sum = over_warp(lane < kThreads / kWarp ? of_warps[lane] : 0.0);
  if (lane == 0) squares[blockIdx.x] = sum;
}

__device__ void update_one(const AdamWFactors& f, float grad, float& p, float& m, float& v) {
  const float g = grad * f.clip;
  m = f.beta_1 * m + f.one_minus_beta_1 * g;
  v = f.beta_2 * v + f.one_minus_beta_2 * (g * g);
  p = p * f.keep - f.step * m / (sqrtf(v) * f.root + f.epsilon);
}

__global__ __launch_bounds__(kThreads) void update(const AdamWChunk* chunks,
                                                   const AdamWFactors* groups, AdamWArrays arrays) {
  const AdamWChunk chunk = chunks[blockIdx.x];
  const AdamWFactors f = groups[chunk.group];
  float* const p = chunk.weights;
  float* const m = arrays.exp_avgs + chunk.state_begin;
  float* const v = arrays.exp_avgs_sq + chunk.state_begin;
  const float* const g = arrays.grads + chunk.state_begin;
  // Shards begin at multiples of 32 elements; parameters inside need not.
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  const bool packs = aligned(p) && aligned(m) && aligned(v) && aligned(g);
  const int64_t in_packs = packs ? chunk.elements / kFour * kFour : 0;
  for (int64_t i = int64_t(threadIdx.x) * kFour; i < in_packs; i += kThreads * kFour) {
    float4 p4 = *reinterpret_cast<float4*>(p + i), m4 = *reinterpret_cast<float4*>(m + i),
           v4 = *reinterpret_cast<float4*>(v + i);
    const float4 g4 = *reinterpret_cast<const float4*>(g + i);
    update_one(f, g4.x, p4.x, m4.x, v4.x);
    update_one(f, g4.y, p4.y, m4.y, v4.y);
    update_one(f, g4.z, p4.z, m4.z, v4.z);
    update_one(f, g4.w, p4.w, m4.w, v4.w);
    *reinterpret_cast<float4*>(p + i) = p4;
    *reinterpret_cast<float4*>(m + i) = m4;
    *reinterpret_cast<float4*>(v + i) = v4;
  }
  for (int64_t i = in_packs + threadIdx.x; i < chunk.elements; i += kThreads)
    update_one(f, g[i], p[i], m[i], v[i]);
}

}  // namespace

void sum_of_squares(const AdamWChunk* chunks, int64_t count, const float* grads, double* squares,
                    cudaStream_t stream) {
  if (count == 0) return;
  squares_of<<<unsigned(count), kThreads, 0, stream>>>(chunks, grads, squares);
  check(cudaGetLastError(), "the CUDA kernel sum_of_squares to start");
}

void adamw_update(const AdamWChunk* chunks, int64_t count, const AdamWFactors* groups,
                  const AdamWArrays& arrays, cudaStream_t stream) {
  if (count == 0) return;
  update<<<unsigned(count), kThreads, 0, stream>>>(chunks, groups, arrays);
  check(cudaGetLastError(), "the CUDA kernel adamw_update to start");
}

}  // namespace fastllm::cuda
