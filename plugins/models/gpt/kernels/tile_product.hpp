// Small matrix products for attention, on the calling thread. The right matrix is packed once into
// panels of kPanel columns and used many times; the left one is read where it lies, by rows or by
// columns. So a product may leave out any rows and any part of the depth, which is how causal
// attention skips what it masks, and nothing is packed again for each product, which takes a
// library a fifth of the time at these sizes.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

constexpr int64_t kPanel = 16;
// The left matrix's rows are worked on so many at a time; other counts of rows cost a little more.
constexpr int64_t kTileRows = 12;

inline int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }
inline int64_t padded(int64_t columns) { return panels_of(columns) * kPanel; }

// Element (row, d) is data[row * row_stride + d * depth_stride].
struct LeftMatrix {
  const float* data;
  int64_t row_stride, depth_stride;
};

// c [rows, kPanel], rows c_stride apart, (=|+=) left [rows, depth] panel [depth, kPanel].
void multiply_panel(int64_t rows, int64_t depth, const LeftMatrix& left, const float* panel,
                    bool add, float* c, int64_t c_stride);

// [rows, columns], rows `stride` apart, as panels of its columns: panels_of(columns) times [rows,
// kPanel], the last filled up with zeros.
void pack_panels(int64_t rows, int64_t columns, int64_t stride, const float* values, float* panels);

// The transpose, as panels of its columns, which are the rows of values [rows, columns]:
// panels_of(rows) times [columns, kPanel], the last filled up with zeros.
void pack_transposed_panels(int64_t rows, int64_t columns, int64_t stride, const float* values,
                            float* panels);

}  // namespace fastllm::gpt
