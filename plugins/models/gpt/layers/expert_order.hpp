// The order in which a mixture's rows lie: tokens that share an expert together, so that an expert's
// work is one matrix product. There is a row for every choice of every token; no capacity, no padding.
#pragma once

#include <cstdint>
#include <vector>

namespace fastllm::gpt {

struct ExpertOrder {
  std::vector<int64_t> ends;    // [experts + 1]: an expert's rows are from ends[e] to ends[e + 1]
  std::vector<int64_t> tokens;  // by row: its token; within an expert ascending
  std::vector<int64_t> rows;    // [tokens, chosen]: the row of each choice

  int64_t count() const { return ends.back(); }
};

// index [tokens, chosen]: experts, each below `experts`, of a token all different.
ExpertOrder sort_by_expert(int64_t tokens, int64_t chosen, int64_t experts, const int32_t* index);

}  // namespace fastllm::gpt
