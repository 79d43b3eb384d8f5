// Rows and tokens in parallel. Every token adds its rows itself, in the order of its choices: no two
// threads write one sum.
#include "kernels/expert_rows.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

FASTLLM_KERNEL void add_row(int64_t width, float score, const float* from, float* __restrict to) {
  for (int64_t i = 0; i < width; ++i) to[i] += score * from[i];
}

}  // namespace

void gather_expert_rows(int64_t rows, int64_t width, const int64_t* tokens, const float* from,
                        float* to) {
  at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::copy_n(from + tokens[row] * width, width, to + row * width);
  });
}

void combine_expert_rows(const ExpertChoices& choices, int64_t width, const float* values,
                         const float* scores, const float* start, float* sums) {
  at::parallel_for(0, choices.tokens, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* const sum = sums + t * width;
      if (start)
        std::copy_n(start + t * width, width, sum);
      else
        std::fill_n(sum, width, 0.0f);
      for (int64_t j = t * choices.chosen; j < (t + 1) * choices.chosen; ++j)
        add_row(width, scores ? scores[j] : 1.0f, values + choices.rows[j] * width, sum);
    }
  });
}

}  // namespace fastllm::gpt
