// One pass. The numbers are functions of the element's place (kernels/random.hpp), so that they are
// the processor's for any division into threads.
#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kThreads = 256;

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void drop(Dropout dropout, int64_t count,
                                                 const Element* values, const Element* base,
                                                 Element* out) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at >= count) return;
  float some[kCount], added[kCount] = {};
  load<kCount>(values + at, some);
  if (base) load<kCount>(base + at, added);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    some[i] = added[i] + some[i] * dropout.factor_at(uint64_t(at + i));
  store<kCount>(out + at, some);
}

}  // namespace

template <class Element>
void apply_dropout(const Dropout& dropout, int64_t count, const Element* values,
                   const Element* base, Element* out, cudaStream_t stream) {
  if (count == 0) return;
  with_packs<Element>(packable<Element>({values, base, out}, {count}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value, kABlock = kThreads * kCount;
    drop<Element, kCount><<<unsigned((count + kABlock - 1) / kABlock), kThreads, 0, stream>>>(
        dropout, count, values, base, out);
    check_launch("apply_dropout");
  });
}

#define INSTANTIATE(Element)                                                                    \
  template void apply_dropout<Element>(const Dropout&, int64_t, const Element*, const Element*, \
                                       Element*, cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
