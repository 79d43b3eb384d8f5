// Gathering divides rows over threads. Scattering divides columns, since two rows may have one
// index: every element is then added to by one thread, in order.
#include "kernels/embedding.hpp"

#include <ATen/Parallel.h>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

FASTLLM_KERNEL void gather(const float* table, const int64_t* indices, int64_t count, int64_t width,
                           bool add, float* out) {
  for (int64_t row = 0; row < count; ++row, out += width) {
    const float* from = table + indices[row] * width;
    float* __restrict to = out;
    if (add) {
      for (int64_t i = 0; i < width; ++i) to[i] += from[i];
    } else {
      for (int64_t i = 0; i < width; ++i) to[i] = from[i];
    }
  }
}

FASTLLM_KERNEL void scatter(const float* rows, const int64_t* indices, int64_t count, int64_t width,
                            int64_t begin, int64_t end, float* table) {
  for (int64_t row = 0; row < count; ++row) {
    const float* from = rows + row * width;
    float* __restrict to = table + indices[row] * width;
    for (int64_t i = begin; i < end; ++i) to[i] += from[i];
  }
}

}  // namespace

void gather_rows(const float* table, const int64_t* indices, int64_t count, int64_t width, bool add,
                 float* out) {
  at::parallel_for(0, count, kRowGrain, [&](int64_t begin, int64_t end) {
    gather(table, indices + begin, end - begin, width, add, out + begin * width);
  });
}

void scatter_rows(const float* rows, const int64_t* indices, int64_t count, int64_t width,
                  float* table) {
  constexpr int64_t kLine = 16;  // floats in a cache line: two threads do not share one
  at::parallel_for(0, (width + kLine - 1) / kLine, 1, [&](int64_t begin, int64_t end) {
    scatter(rows, indices, count, width, begin * kLine, end * kLine < width ? end * kLine : width,
            table);
  });
}

}  // namespace fastllm::gpt
