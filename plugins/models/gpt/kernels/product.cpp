// BLAS counts in columns: its view of a row-major matrix is the transpose, so c^T = b^T a^T.
#include "kernels/product.hpp"

extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
                       const int* k, const float* alpha, const float* a, const int* a_stride,
                       const float* b, const int* b_stride, const float* beta, float* c,
                       const int* c_stride);

namespace fastllm::gpt {

void product(int64_t rows, int64_t columns, int64_t inner, const Operand& a, const Operand& b,
             bool add, float* c, int64_t c_stride) {
  const int m = int(columns), n = int(rows), k = int(inner);
  const int a_stride = int(a.stride), b_stride = int(b.stride), stride = int(c_stride);
  const float one = 1, beta = add ? 1 : 0;
  sgemm_(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &m, &n, &k, &one, b.data, &b_stride,
         a.data, &a_stride, &beta, c, &stride);
}

}  // namespace fastllm::gpt
