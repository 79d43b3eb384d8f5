// The matrix products of the layers: by tiles of our own where those are faster, otherwise by the
// library.
#pragma once

#include <ATen/core/Tensor.h>

namespace fastllm::gpt {

// out (=|+=) scale * left right. All float32 matrices with rows or columns that are contiguous; out's
// rows are. out is none of the others' memory.
void product(const at::Tensor& left, const at::Tensor& right, bool add, const at::Tensor& out,
             double scale = 1);

}  // namespace fastllm::gpt
