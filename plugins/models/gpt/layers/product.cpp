#include "layers/product.hpp"

#include <ATen/ops/addmm.h>

#include "kernels/matrix_product.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt {
namespace {

bool fits(const at::Tensor& matrix) {
  return matrix.dim() == 2 && matrix.scalar_type() == at::kFloat &&
         (matrix.stride(0) == 1 || matrix.stride(1) == 1);
}
MatrixView view(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<float>(), matrix.stride(0), matrix.stride(1)};
}

}  // namespace

void product(const at::Tensor& left, const at::Tensor& right, bool add, const at::Tensor& out,
             double scale) {
  static const bool tiles = prefers_tiles();
  const ProductShape shape{left.size(0), right.size(1), left.size(1)};
  if (!tiles || scale != 1 || shape.depth == 0 || !fits(left) || !fits(right) || !fits(out) ||
      out.stride(1) != 1) {
    at::Tensor result = out;
    at::addmm_out(result, result, left, right, add ? 1 : 0, scale);
    return;
  }
  const at::Tensor scratch = empty({scratch_size(shape)});
  multiply_matrices(shape, view(left), view(right), add, out.mutable_data_ptr<float>(),
                    out.stride(0), scratch.mutable_data_ptr<float>());
}

}  // namespace fastllm::gpt
