// A block a token: its angles serve all heads. Rotary embedding: Su et al. 2021. A pair's two
// elements lie half a head apart, or side by side; either way a thread turns a pack of pairs.
#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kThreads = 256;

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void turn(RotaryShape shape, const float* table,
                                                 const int64_t* positions, float sign,
                                                 Element* values) {
  const int half = int(shape.head_width) / 2, packs = half / kCount;
  const float* const cosines = table + positions[blockIdx.x] * shape.head_width;
  Element* const token = values + int64_t(blockIdx.x) * shape.stride;
  for (int work = int(threadIdx.x); work < int(shape.heads) * packs; work += int(blockDim.x)) {
    const int pair = work % packs * kCount;
    Element* const head = token + int64_t(work / packs) * shape.head_width;
    // The first pack and the second hold what the pairs are made of, apart or alternating.
    Element* const first = head + (shape.interleaved ? 2 * pair : pair);
    Element* const second = first + (shape.interleaved ? kCount : half);
    float cosine[kCount], sine[kCount], a[2][kCount];
    load<kCount>(cosines + pair, cosine);
    load<kCount>(cosines + half + pair, sine);
    load<kCount>(first, a[0]);
    load<kCount>(second, a[1]);
    const auto turn_pair = [&](float& x, float& y, int i) {
      const float old = x, s = sign * sine[i];
      x = old * cosine[i] - y * s;
      y = y * cosine[i] + old * s;
    };
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (shape.interleaved)
        turn_pair(a[2 * i / kCount][2 * i % kCount], a[(2 * i + 1) / kCount][(2 * i + 1) % kCount],
                  i);
      else
        turn_pair(a[0][i], a[1][i], i);
    }
    store<kCount>(first, a[0]);
    store<kCount>(second, a[1]);
  }
}

}  // namespace

template <class Element>
void rotate(const RotaryShape& shape, const float* table, const int64_t* positions, bool backward,
            Element* values, cudaStream_t stream) {
  if (shape.tokens == 0 || shape.heads == 0 || shape.head_width == 0) return;
  const bool packs = packable<Element>({table, values}, {shape.head_width / 2, shape.stride});
  with_packs<Element>(packs, [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    const int threads = threads_for(shape.heads * shape.head_width / 2, kCount, kThreads);
    turn<Element, kCount><<<unsigned(shape.tokens), threads, 0, stream>>>(
        shape, table, positions, backward ? -1.0f : 1.0f, values);
    check_launch("rotate");
  });
}

#define INSTANTIATE(Element)                                                                      \
  template void rotate<Element>(const RotaryShape&, const float*, const int64_t*, bool, Element*, \
                                cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
