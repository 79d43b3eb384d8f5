// One matrix product on the calling thread, through the BLAS that LibTorch brings: for products of
// a few microseconds, where making tensors would cost as much as the product.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

// A row-major matrix, rows `stride` elements apart; transposed: what is meant is its transpose.
struct Operand {
  const float* data;
  int64_t stride;
  bool transposed = false;
};

// c [rows, columns], rows c_stride apart, (=|+=) a [rows, inner] b [inner, columns]. All sizes and
// strides are below 2^31. On one thread when called from a parallel region, as it must be.
void product(int64_t rows, int64_t columns, int64_t inner, const Operand& a, const Operand& b,
             bool add, float* c, int64_t c_stride);

}  // namespace fastllm::gpt
