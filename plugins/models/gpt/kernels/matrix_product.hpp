// Large matrix products from the tiles of tile_product.hpp, over all threads. On processors with
// AVX2 and no AVX-512 they are a fifth to a third faster than the library's at the sizes of
// transformers.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

// Element (row, column) is data[row * row_stride + column * column_stride]; one stride is 1.
template <class Element>
struct MatrixViewOf {
  const Element* data;
  int64_t row_stride, column_stride;
};
using MatrixView = MatrixViewOf<float>;

// Whether this processor is one for which multiply_matrices is the faster one.
bool prefers_tiles();

// out [rows, columns], rows out_stride apart, (=|+=) left [rows, depth] right [depth, columns]. Bits
// do not depend on the number of threads. scratch: scratch_size floats, aligned or not.
struct ProductShape {
  int64_t rows, columns, depth;
};
int64_t scratch_size(const ProductShape& shape);
void multiply_matrices(const ProductShape& shape, const MatrixView& left, const MatrixView& right,
                       bool add, float* out, int64_t out_stride, float* scratch);

}  // namespace fastllm::gpt
