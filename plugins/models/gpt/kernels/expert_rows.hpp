// Rows of tokens by expert: tokens that share an expert lie together, so that an expert's work is
// one matrix product. There is a row for every choice of every token; no capacity, no padding.
#pragma once

#include <cstdint>
#include <vector>

namespace fastllm::gpt {

struct ExpertRows {
  std::vector<int64_t> ends;    // [experts + 1]: an expert's rows are from ends[e] to ends[e + 1]
  std::vector<int64_t> tokens;  // by row: its token; within an expert ascending
  std::vector<int64_t> rows;    // [tokens, chosen]: the row of each choice
};

// index [tokens, chosen]: experts, each below `experts`, of a token all different.
ExpertRows sort_by_expert(int64_t tokens, int64_t chosen, int64_t experts, const int32_t* index);

// to [rows, width]: the rows of `from` [tokens, width] that rows stand for.
void gather_rows(const ExpertRows& rows, int64_t width, const float* from, float* to);

// sums [tokens, width] = start + sum over a token's choices of score * its row, in the order of the
// choices. scores [tokens, chosen]; null: 1. start [tokens, width]; null: 0.
void combine_rows(const ExpertRows& rows, int64_t tokens, int64_t width, const float* values,
                  const float* scores, const float* start, float* sums);

}  // namespace fastllm::gpt
