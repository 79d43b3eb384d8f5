// A counting sort; then copies and sums of whole rows, tokens in parallel. Every token adds its rows
// itself, in the order of its choices: no two threads write one sum.
#include "kernels/expert_rows.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

FASTLLM_KERNEL void add_row(int64_t width, float score, const float* from, float* __restrict to) {
  for (int64_t i = 0; i < width; ++i) to[i] += score * from[i];
}

}  // namespace

ExpertRows sort_by_expert(int64_t tokens, int64_t chosen, int64_t experts, const int32_t* index) {
  ExpertRows result;
  const int64_t count = tokens * chosen;
  result.ends.assign(size_t(experts + 1), 0);
  result.tokens.resize(size_t(count));
  result.rows.resize(size_t(count));
  for (int64_t j = 0; j < count; ++j) ++result.ends[size_t(index[j]) + 1];
  for (size_t e = 0; e < size_t(experts); ++e) result.ends[e + 1] += result.ends[e];
  std::vector<int64_t> next(result.ends.begin(), result.ends.end() - 1);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t row = next[size_t(index[j])]++;
    result.rows[size_t(j)] = row;
    result.tokens[size_t(row)] = j / chosen;
  }
  return result;
}

void gather_rows(const ExpertRows& rows, int64_t width, const float* from, float* to) {
  at::parallel_for(0, int64_t(rows.tokens.size()), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::copy_n(from + rows.tokens[size_t(row)] * width, width, to + row * width);
  });
}

void combine_rows(const ExpertRows& rows, int64_t tokens, int64_t width, const float* values,
                  const float* scores, const float* start, float* sums) {
  const int64_t chosen = int64_t(rows.rows.size()) / std::max<int64_t>(tokens, 1);
  at::parallel_for(0, tokens, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* const sum = sums + t * width;
      if (start)
        std::copy_n(start + t * width, width, sum);
      else
        std::fill_n(sum, width, 0.0f);
      for (int64_t j = t * chosen; j < (t + 1) * chosen; ++j)
        add_row(width, scores ? scores[j] : 1.0f, values + rows.rows[size_t(j)] * width, sum);
    }
  });
}

}  // namespace fastllm::gpt
