// The depth goes by in parts, for each of which the right matrix is packed; then blocks of the result
// are tasks, each the sum over the part for its rows and columns. An element is summed in
// order of depth whatever the blocks are.
#include "kernels/matrix_product.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "kernels/common.hpp"
#include "kernels/tile_product.hpp"

namespace fastllm::gpt {
namespace {

constexpr int64_t kDepth = 384;           // a panel of the right matrix stays in the first cache
constexpr int64_t kRows = 48;             // a block of the left matrix stays in the second
constexpr int64_t kColumns = 512;         // of a task
constexpr int64_t kPackedColumns = 4096;  // packed at once: a vocabulary is not packed whole
static_assert(kRows % kTileRows == 0 && kColumns % kPanel == 0 && kPackedColumns % kColumns == 0);

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

void pack_right(const ProductShape& shape, const MatrixView& right, int64_t first, int64_t depth,
                float* panels) {
  at::parallel_for(0, panels_of(shape.columns), 4, [&](int64_t begin, int64_t end) {
    const int64_t column = begin * kPanel, count = std::min(end * kPanel, shape.columns) - column;
    const float* from = right.data + first * right.row_stride + column * right.column_stride;
    float* to = panels + column * depth;
    if (right.column_stride == 1)
      pack_panels(depth, count, right.row_stride, from, to);
    else
      pack_transposed_panels(count, depth, right.column_stride, from, to);
  });
}

// [rows, depth] of a matrix whose columns are contiguous, as rows. By eights, so that each line of
// the cache is used whole.
FASTLLM_KERNEL void transpose_block(int64_t rows, int64_t depth, const float* from, int64_t stride,
                                    float* to) {
  for (int64_t d = 0; d < depth; d += 8) {
    const int64_t some = std::min<int64_t>(8, depth - d);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < some; ++i) to[row * depth + d + i] = from[(d + i) * stride + row];
  }
}

// out [rows, columns] (=|+=) left times panels.
void multiply_block(int64_t rows, int64_t columns, int64_t depth, const LeftMatrix& left,
                    const float* panels, bool add, float* out, int64_t out_stride) {
  int64_t column = 0;
  for (; column + kPanel <= columns; column += kPanel)
    multiply_panel(rows, depth, left, panels + column * depth, add, out + column, out_stride);
  if (column == columns) return;
  // The last columns do not fill a panel: beside the result, then into it.
  std::array<float, kRows * kPanel> whole{};
  const int64_t rest = columns - column;
  if (add) {
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(out + row * out_stride + column, rest, whole.data() + row * kPanel);
  }
  multiply_panel(rows, depth, left, panels + column * depth, add, whole.data(), kPanel);
  for (int64_t row = 0; row < rows; ++row)
    std::copy_n(whole.data() + row * kPanel, rest, out + row * out_stride + column);
}

void multiply_some_columns(const ProductShape& shape, const MatrixView& left,
                           const MatrixView& right, bool add, float* out, int64_t out_stride,
                           float* scratch) {
  const int64_t row_blocks = blocks_of(shape.rows, kRows);
  const int64_t column_blocks = blocks_of(shape.columns, kColumns);
  for (int64_t first = 0; first < shape.depth; first += kDepth) {
    const int64_t depth = std::min(kDepth, shape.depth - first);
    pack_right(shape, right, first, depth, scratch);
    at::parallel_for(0, row_blocks * column_blocks, 1, [&](int64_t begin, int64_t end) {
      std::array<float, kRows * kDepth> transposed;
      int64_t transposed_block = -1;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t block = task / column_blocks, row = block * kRows;
        const int64_t column = task % column_blocks * kColumns;
        const int64_t rows = std::min(kRows, shape.rows - row);
        const float* from = left.data + row * left.row_stride + first * left.column_stride;
        LeftMatrix rows_of_left{from, left.row_stride, 1};
        if (left.column_stride != 1) {
          if (block != transposed_block)
            transpose_block(rows, depth, from, left.column_stride, transposed.data());
          transposed_block = block;
          rows_of_left = {transposed.data(), depth, 1};
        }
        multiply_block(rows, std::min(kColumns, shape.columns - column), depth, rows_of_left,
                       scratch + column * depth, add || first > 0, out + row * out_stride + column,
                       out_stride);
      }
    });
  }
}

}  // namespace

bool prefers_tiles() {
#ifdef FASTLLM_KERNEL_LEVELS
  return __builtin_cpu_supports("x86-64-v3") && !__builtin_cpu_supports("x86-64-v4");
#else
  return false;
#endif
}

int64_t scratch_size(const ProductShape& shape) {
  return padded(std::min(kPackedColumns, shape.columns)) * std::min(kDepth, shape.depth);
}

void multiply_matrices(const ProductShape& shape, const MatrixView& left, const MatrixView& right,
                       bool add, float* out, int64_t out_stride, float* scratch) {
  for (int64_t column = 0; column < shape.columns; column += kPackedColumns) {
    const ProductShape some{shape.rows, std::min(kPackedColumns, shape.columns - column),
                            shape.depth};
    const MatrixView columns{right.data + column * right.column_stride, right.row_stride,
                             right.column_stride};
    multiply_some_columns(some, left, columns, add, out + column, out_stride, scratch);
  }
}

}  // namespace fastllm::gpt
