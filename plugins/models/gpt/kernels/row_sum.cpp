// Two passes: pieces of rows in parallel, then columns in parallel.
// The first pass reads the matrix once; the second is 1 / kRowsPerPiece of it.
#include "kernels/row_sum.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

FASTLLM_KERNEL void add_rows(const float* values, int64_t rows, int64_t columns, int64_t stride,
                             float* __restrict out) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = values + row * stride;
    for (int64_t column = 0; column < columns; ++column) out[column] += from[column];
  }
}

}  // namespace

void row_sum(const float* values, int64_t rows, int64_t columns, bool overwrite, float* out) {
  const int64_t pieces = pieces_of(rows);
  const auto partial = std::make_unique_for_overwrite<float[]>(size_t(pieces * columns));
  at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kRowsPerPiece, count = std::min(kRowsPerPiece, rows - first);
      float* const sum = partial.get() + piece * columns;
      std::fill_n(sum, columns, 0.0f);
      add_rows(values + first * columns, count, columns, columns, sum);
    }
  });
  at::parallel_for(0, columns, kColumnGrain, [&](int64_t begin, int64_t end) {
    if (overwrite) std::fill(out + begin, out + end, 0.0f);
    add_rows(partial.get() + begin, pieces, end - begin, columns, out + begin);
  });
}

}  // namespace fastllm::gpt
