// Gathering divides rows over threads. Scattering divides columns, since two rows may have one
// index: every element is then added to by one thread, in order.
#include "kernels/embedding.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

template <bool two, bool dropping>
FASTLLM_INLINE void gather_row(const float* first, const float* second, int64_t width,
                               const Dropout& dropout, uint64_t element, float* __restrict out) {
  for (int64_t i = 0; i < width; ++i) {
    float value = first[i];
    if constexpr (two) value += second[i];
    if constexpr (dropping) value *= dropout.factor(element + uint64_t(i));
    out[i] = value;
  }
}

FASTLLM_KERNEL void gather(const TableRows& first, const TableRows& second, int64_t begin,
                           int64_t end, int64_t width, const Dropout& dropout, float* out) {
  for (int64_t row = begin; row < end; ++row) {
    const float* a = first.row(row, width);
    const float* b = second.table ? second.row(row, width) : nullptr;
    const auto element = uint64_t(row * width);
    float* to = out + row * width;
    if (!a) {  // a part of a sum over ranks, which has no second table
      std::fill_n(to, width, 0.0f);
      continue;
    }
    if (dropout.active())
      b ? gather_row<true, true>(a, b, width, dropout, element, to)
        : gather_row<false, true>(a, b, width, dropout, element, to);
    else
      b ? gather_row<true, false>(a, b, width, dropout, element, to)
        : gather_row<false, false>(a, b, width, dropout, element, to);
  }
}

struct Rows {
  int64_t begin, end;
};
FASTLLM_KERNEL void scatter(const float* rows, const int64_t* indices, Rows which, int64_t width,
                            int64_t begin, int64_t end, const Dropout& dropout, float* table,
                            int64_t first, int64_t held) {
  for (int64_t row = which.begin; row < which.end; ++row) {
    const int64_t index = indices[row] - first;
    if (index < 0 || index >= held) continue;
    const float* from = rows + row * width;
    float* __restrict to = table + index * width;
    if (dropout.active()) {
      for (int64_t i = begin; i < end; ++i)
        to[i] += from[i] * dropout.factor(uint64_t(row * width + i));
    } else {
      for (int64_t i = begin; i < end; ++i) to[i] += from[i];
    }
  }
}

}  // namespace

void gather_rows(const TableRows& first, const TableRows& second, int64_t count, int64_t width,
                 const Dropout& dropout, float* out) {
  dropout.for_each_run(count * width, [&](int64_t from, int64_t to, const Dropout& run) {
    at::parallel_for(from / width, to / width, kRowGrain, [&](int64_t begin, int64_t end) {
      gather(first, second, begin, end, width, run, out);
    });
  });
}

void scatter_rows(const float* rows, const int64_t* indices, int64_t count, int64_t width,
                  const Dropout& dropout, float* table, int64_t first, int64_t held) {
  constexpr int64_t kLine = 16;  // floats in a cache line: two threads do not share one
  dropout.for_each_run(count * width, [&](int64_t from, int64_t to, const Dropout& run) {
    at::parallel_for(0, (width + kLine - 1) / kLine, 1, [&](int64_t begin, int64_t end) {
      scatter(rows, indices, {from / width, to / width}, width, begin * kLine,
              std::min(end * kLine, width), run, table, first, held);
    });
  });
}

}  // namespace fastllm::gpt
