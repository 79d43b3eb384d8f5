// Numbers depend on the element alone, so threads may divide the elements anywhere.
#include "kernels/dropout.hpp"

#include <ATen/Parallel.h>

namespace fastllm::gpt {
namespace {

FASTLLM_KERNEL void some_elements(const Dropout& dropout, int64_t begin, int64_t end,
                                  const float* values, const float* base, float* out) {
  if (base) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = base[i] + values[i] * dropout.factor(uint64_t(i));
  } else {
    for (int64_t i = begin; i < end; ++i) out[i] = values[i] * dropout.factor(uint64_t(i));
  }
}

}  // namespace

void apply_dropout(const Dropout& dropout, int64_t count, const float* values, const float* base,
                   float* out) {
  dropout.for_each_run(count, [&](int64_t first, int64_t last, const Dropout& run) {
    at::parallel_for(first, last, kElementGrain, [&](int64_t begin, int64_t end) {
      some_elements(run, begin, end, values, base, out);
    });
  });
}

}  // namespace fastllm::gpt
