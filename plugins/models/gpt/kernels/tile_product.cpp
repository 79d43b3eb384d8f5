// A tile of the result stays in registers while the depth goes by: a row of the panel is loaded
// once for all rows of the tile, and an element of the left matrix is spread over a vector. Every
// element of the result is one sum in order of depth, so its bits do not depend on the tile.
#include "kernels/tile_product.hpp"

#include <algorithm>
#include <utility>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

template <int kLanes>
struct Vector {
  typedef float type __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
};

template <int kLanes, int kRows>
FASTLLM_INLINE void multiply_tile(int64_t depth, const LeftMatrix& left, const float* panel,
                                  bool add, float* c, int64_t c_stride) {
  using Lanes = typename Vector<kLanes>::type;
  constexpr int kVectors = int(kPanel) / kLanes;
  Lanes sums[kRows][kVectors] = {};
  const float* a = left.data;
  for (int64_t d = 0; d < depth; ++d, a += left.depth_stride, panel += kPanel) {
    Lanes b[kVectors];
    for (int v = 0; v < kVectors; ++v) b[v] = *reinterpret_cast<const Lanes*>(panel + v * kLanes);
    for (int row = 0; row < kRows; ++row) {
      const float x = a[row * left.row_stride];
      for (int v = 0; v < kVectors; ++v) sums[row][v] += x * b[v];
    }
  }
  // What is there is added last: a long sum then rounds by parts, not by all its elements.
  for (int row = 0; row < kRows; ++row)
    for (int v = 0; v < kVectors; ++v) {
      Lanes* to = reinterpret_cast<Lanes*>(c + row * c_stride + v * kLanes);
      *to = add ? *to + sums[row][v] : sums[row][v];
    }
}

// The rows that are left after the full tiles, fewer than kRows.
template <int kLanes, int kRows>
FASTLLM_INLINE void multiply_rest(int64_t rows, int64_t depth, const LeftMatrix& left,
                                  const float* panel, bool add, float* c, int64_t c_stride) {
  if constexpr (kRows > 0) {
    if (rows == kRows)
      multiply_tile<kLanes, kRows>(depth, left, panel, add, c, c_stride);
    else
      multiply_rest<kLanes, kRows - 1>(rows, depth, left, panel, add, c, c_stride);
  }
}

template <int kLanes, int kRows>
FASTLLM_INLINE void multiply_rows(int64_t rows, int64_t depth, LeftMatrix left, const float* panel,
                                  bool add, float* c, int64_t c_stride) {
  for (; rows >= kRows; rows -= kRows) {
    multiply_tile<kLanes, kRows>(depth, left, panel, add, c, c_stride);
    left.data += kRows * left.row_stride;
    c += kRows * c_stride;
  }
  multiply_rest<kLanes, kRows - 1>(rows, depth, left, panel, add, c, c_stride);
}

using Multiply = void (*)(int64_t, int64_t, const LeftMatrix&, const float*, bool, float*, int64_t);

// Sums, one row of the panel and an element fill the registers there are.
void multiply_any(int64_t rows, int64_t depth, const LeftMatrix& left, const float* panel, bool add,
                  float* c, int64_t c_stride) {
  multiply_rows<4, 2>(rows, depth, left, panel, add, c, c_stride);
}
#ifdef FASTLLM_KERNEL_LEVELS
__attribute__((target("arch=x86-64-v3"))) void multiply_avx2(int64_t rows, int64_t depth,
                                                             const LeftMatrix& left,
                                                             const float* panel, bool add, float* c,
                                                             int64_t c_stride) {
  multiply_rows<8, 6>(rows, depth, left, panel, add, c, c_stride);
}
__attribute__((target("arch=x86-64-v4"))) void multiply_avx512(int64_t rows, int64_t depth,
                                                               const LeftMatrix& left,
                                                               const float* panel, bool add,
                                                               float* c, int64_t c_stride) {
  multiply_rows<16, 12>(rows, depth, left, panel, add, c, c_stride);
}
#endif

Multiply choose() {
#ifdef FASTLLM_KERNEL_LEVELS
  if (__builtin_cpu_supports("x86-64-v4")) return multiply_avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return multiply_avx2;
#endif
  return multiply_any;
}

}  // namespace

void multiply_panel(int64_t rows, int64_t depth, const LeftMatrix& left, const float* panel,
                    bool add, float* c, int64_t c_stride) {
  static const Multiply multiply = choose();
  multiply(rows, depth, left, panel, add, c, c_stride);
}

void pack_panels(int64_t rows, int64_t columns, int64_t stride, const float* values,
                 float* panels) {
  for (int64_t first = 0; first < columns; first += kPanel) {
    const int64_t width = std::min(kPanel, columns - first);
    for (int64_t row = 0; row < rows; ++row, panels += kPanel) {
      const float* from = values + row * stride + first;
      if (width == kPanel) {
        std::copy_n(from, kPanel, panels);  // of a fixed size: two loads and stores
      } else {
        std::fill(std::copy_n(from, width, panels), panels + kPanel, 0.0f);
      }
    }
  }
}

FASTLLM_KERNEL void pack_transposed_panels(int64_t rows, int64_t columns, int64_t stride,
                                           const float* values, float* panels) {
  for (int64_t first = 0; first < rows; first += kPanel, panels += columns * kPanel) {
    const int64_t height = std::min(kPanel, rows - first);
    if (height < kPanel) std::fill_n(panels, columns * kPanel, 0.0f);
    for (int64_t row = 0; row < height; ++row) {
      const float* from = values + (first + row) * stride;
      for (int64_t column = 0; column < columns; ++column)
        panels[column * kPanel + row] = from[column];
    }
  }
}

}  // namespace fastllm::gpt
