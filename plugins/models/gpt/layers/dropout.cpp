// Thin: sizes and pointers for kernels/dropout.cpp.
#include "layers/dropout.hpp"

#include "kernels/dropout.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt {

Dropout hidden_dropout(double probability, const sdk::Call& call, RandomUse use,
                       const SamplePart& part, int64_t width) {
  if (call.evaluation()) return {};
  const Dropout all = make_dropout(probability, stream_key(call->seed, call->offset, use));
  if (part.all()) return all;
  return all.from(part.first * width)
      .in_runs(part.length * width, (part.tokens - part.length) * width);
}

void add_branch(const Dropout& dropout, const at::Tensor& branch, const at::Tensor& residual,
                const at::Tensor& y) {
  apply_dropout(dropout, branch.numel(), branch.const_data_ptr<float>(),
                residual.const_data_ptr<float>(), y.mutable_data_ptr<float>());
}

at::Tensor branch_gradient(const Dropout& dropout, const at::Tensor& dy) {
  if (!dropout.active()) return dy;
  const at::Tensor d_branch = empty_as(dy);
  apply_dropout(dropout, dy.numel(), dy.const_data_ptr<float>(), nullptr,
                d_branch.mutable_data_ptr<float>());
  return d_branch;
}

}  // namespace fastllm::gpt
