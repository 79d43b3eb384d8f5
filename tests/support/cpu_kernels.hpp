// The processor's kernels as a side of kernel_cases.hpp.
#pragma once

#include "core/shard/elements.hpp"
#include "tests/support/host_side.hpp"
#include "tests/support/kernel_cases.hpp"

namespace fastllm::testing {

struct CpuSide : HostSide {
  using HostSide::HostSide;

#define FASTLLM_FORWARD(space, name)                           \
  template <class... Arguments>                                \
  auto name(Arguments&&... arguments) {                        \
    return space::name(std::forward<Arguments>(arguments)...); \
  }
  FASTLLM_FORWARD(gpt, norm_forward)
  FASTLLM_FORWARD(gpt, norm_backward)
  FASTLLM_FORWARD(gpt, rotate)
  FASTLLM_FORWARD(gpt, activation_forward)
  FASTLLM_FORWARD(gpt, activation_backward)
  FASTLLM_FORWARD(gpt, cross_entropy)
  FASTLLM_FORWARD(gpt, row_maxima)
  FASTLLM_FORWARD(gpt, row_sums)
  FASTLLM_FORWARD(gpt, cross_entropy_of_sums)
  FASTLLM_FORWARD(gpt, apply_dropout)
  FASTLLM_FORWARD(gpt, gather_rows)
  FASTLLM_FORWARD(gpt, scatter_rows)
  FASTLLM_FORWARD(gpt, row_sum)
  FASTLLM_FORWARD(gpt, attention_softmax)
  FASTLLM_FORWARD(gpt, attention_softmax_backward)
  FASTLLM_FORWARD(gpt, store_rows)
  FASTLLM_FORWARD(gpt, scored_activation_backward)
  FASTLLM_FORWARD(gpt, gather_expert_rows)
  FASTLLM_FORWARD(gpt, combine_expert_rows)
  FASTLLM_FORWARD(gpt, choose_largest)
  FASTLLM_FORWARD(gpt, row_softmax)
  FASTLLM_FORWARD(gpt, row_sigmoid)
  FASTLLM_FORWARD(gpt, row_log_sum)
  FASTLLM_FORWARD(gpt, take_chosen)
  FASTLLM_FORWARD(gpt, chosen_softmax)
  FASTLLM_FORWARD(gpt, add_column_sums)
  FASTLLM_FORWARD(gpt, add_choices)
  FASTLLM_FORWARD(gpt, chosen_softmax_backward)
  FASTLLM_FORWARD(gpt, chosen_probability_backward)
  FASTLLM_FORWARD(gpt, balance_backward)
  FASTLLM_FORWARD(gpt, z_backward)
  FASTLLM_FORWARD(gpt, row_exponentials)
  FASTLLM_FORWARD(gpt, balance_rows)
  FASTLLM_FORWARD(gpt, scale_columns)
  FASTLLM_FORWARD(shard, copy)
  FASTLLM_FORWARD(shard, add)
  FASTLLM_FORWARD(shard, fill_zero)
  FASTLLM_FORWARD(optim, sum_of_squares)
  FASTLLM_FORWARD(optim, adamw_update)
#undef FASTLLM_FORWARD

  void multiply_matrices(const gpt::ProductShape& shape, const gpt::MatrixView& left,
                         const gpt::MatrixView& right, bool add, float* out, int64_t out_stride) {
    gpt::multiply_matrices(shape, left, right, add, out, out_stride,
                           put(std::vector<float>(size_t(gpt::scratch_size(shape)))));
  }
};

}  // namespace fastllm::testing
