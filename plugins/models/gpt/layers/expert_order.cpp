// A counting sort, stable.
#include "layers/expert_order.hpp"

namespace fastllm::gpt {

ExpertOrder sort_by_expert(int64_t tokens, int64_t chosen, int64_t experts, const int32_t* index) {
  ExpertOrder result;
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

}  // namespace fastllm::gpt
