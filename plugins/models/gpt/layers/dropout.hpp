// Dropout of hidden states on the level of tensors: what a branch adds to the residual stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <fastllm/model.hpp>

#include "kernels/random.hpp"
#include "parallel.hpp"

namespace fastllm::gpt {

// Of one use in one call, for hidden states [tokens here, width] with the numbers that they have in
// whole samples; inactive in evaluation.
Dropout hidden_dropout(double probability, const sdk::Call& call, RandomUse use,
                       const SamplePart& part, int64_t width);

// y = residual + dropout(branch), of equal shapes; y may be branch's memory.
void add_branch(const Dropout& dropout, const at::Tensor& branch, const at::Tensor& residual,
                const at::Tensor& y);
// The gradient of the branch: dy itself when inactive, otherwise new memory.
at::Tensor branch_gradient(const Dropout& dropout, const at::Tensor& dy);

}  // namespace fastllm::gpt
