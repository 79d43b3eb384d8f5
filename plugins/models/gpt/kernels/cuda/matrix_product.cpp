// cuBLAS counts columns first: our row-major out = left right is its out^T = right^T left^T, whose
// operands are ours as they lie in memory, or transposed where a view's other stride is 1. Sums are
// in float32, without TF32. With one handle a stream its bits repeat from run to run (cuBLAS library,
// "Results reproducibility").
#include "kernels/matrix_product.hpp"

#include <fastllm/plugin.hpp>

#include <string>
#include <type_traits>

#include "kernels/cuda/kernels.hpp"

namespace fastllm::gpt::cuda {
namespace {

template <class Element>
constexpr cudaDataType kType = std::is_same_v<Element, float>    ? CUDA_R_32F
                               : std::is_same_v<Element, __half> ? CUDA_R_16F
                                                                 : CUDA_R_16BF;

struct Operand {
  cublasOperation_t operation;
  int stride;
};
// Of one row or column both strides may be 1: cuBLAS wants no less than the length of what is
// contiguous.
template <class Element>
Operand operand(const MatrixViewOf<Element>& view, int64_t rows, int64_t columns) {
  if (view.column_stride == 1) return {CUBLAS_OP_N, int(std::max(view.row_stride, columns))};
  return {CUBLAS_OP_T, int(std::max(view.column_stride, rows))};
}

}  // namespace

template <class Element>
void multiply_matrices(const ProductShape& shape, const MatrixViewOf<Element>& left,
                       const MatrixViewOf<Element>& right, bool add, Element* out,
                       int64_t out_stride, cublasHandle_t blas) {
  if (shape.rows == 0 || shape.columns == 0) return;
  const float one = 1, kept = add ? 1 : 0;
  const Operand a = operand(right, shape.depth, shape.columns),
                b = operand(left, shape.rows, shape.depth);
  const cublasStatus_t status = cublasGemmEx(
      blas, a.operation, b.operation, int(shape.columns), int(shape.rows), int(shape.depth), &one,
      right.data, kType<Element>, a.stride, left.data, kType<Element>, b.stride, &kept, out,
      kType<Element>, int(out_stride), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    sdk::fail(FASTLLM_INTERNAL,
              "expected cuBLAS to multiply [" + std::to_string(shape.rows) + ", " +
                  std::to_string(shape.depth) + "] by [" + std::to_string(shape.depth) + ", " +
                  std::to_string(shape.columns) + "], found " + cublasGetStatusName(status) +
                  "; an earlier call may have caused it: CUDA_LAUNCH_BLOCKING=1 tells which");
}

#define INSTANTIATE(Element)                                                                      \
  template void multiply_matrices<Element>(const ProductShape&, const MatrixViewOf<Element>&,     \
                                           const MatrixViewOf<Element>&, bool, Element*, int64_t, \
                                           cublasHandle_t);
INSTANTIATE(float)
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)

}  // namespace fastllm::gpt::cuda
