// A block a row or a token; a token adds its rows in the order of its choices, so no two blocks write
// one sum.
#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kThreads = 256;

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void gather(int64_t width, const int64_t* tokens,
                                                   const Element* from, Element* to) {
  const int64_t row = blockIdx.x, token = tokens[row];
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < width; at += int64_t(blockDim.x) * kCount)
    *reinterpret_cast<Pack<Element, kCount>*>(to + row * width + at) =
        *reinterpret_cast<const Pack<Element, kCount>*>(from + token * width + at);
}

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void combine(ExpertChoices choices, int64_t width,
                                                    const Element* values, const float* scores,
                                                    const Element* start, Element* sums) {
  const int64_t t = blockIdx.x;
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < width; at += int64_t(blockDim.x) * kCount) {
    float sum[kCount] = {};
    if (start) load<kCount>(start + t * width + at, sum);
    for (int64_t j = t * choices.chosen; j < (t + 1) * choices.chosen; ++j) {
      const float score = scores ? scores[j] : 1.0f;
      float some[kCount];
      load<kCount>(values + choices.rows[j] * width + at, some);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[i] += score * some[i];
    }
    store<kCount>(sums + t * width + at, sum);
  }
}

}  // namespace

template <class Element>
void gather_expert_rows(int64_t rows, int64_t width, const int64_t* tokens, const Element* from,
                        Element* to, cudaStream_t stream) {
  if (rows == 0 || width == 0) return;
  with_packs<Element>(packable<Element>({from, to}, {width}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    gather<Element, kCount><<<unsigned(rows), threads_for(width, kCount, kThreads), 0, stream>>>(
        width, tokens, from, to);
    check_launch("gather_expert_rows");
  });
}

template <class Element>
void combine_expert_rows(const ExpertChoices& choices, int64_t width, const Element* values,
                         const float* scores, const Element* start, Element* sums,
                         cudaStream_t stream) {
  if (choices.tokens == 0 || width == 0) return;
  with_packs<Element>(packable<Element>({values, start, sums}, {width}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    combine<Element, kCount>
        <<<unsigned(choices.tokens), threads_for(width, kCount, kThreads), 0, stream>>>(
            choices, width, values, scores, start, sums);
    check_launch("combine_expert_rows");
  });
}

#define INSTANTIATE(Element)                                                                  \
  template void gather_expert_rows<Element>(int64_t, int64_t, const int64_t*, const Element*, \
                                            Element*, cudaStream_t);                          \
  template void combine_expert_rows<Element>(const ExpertChoices&, int64_t, const Element*,   \
                                             const float*, const Element*, Element*,          \
                                             cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
