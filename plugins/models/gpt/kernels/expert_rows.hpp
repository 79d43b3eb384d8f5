// From tokens to rows by expert, and back: copies and weighted sums of whole rows, one pass each.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

// to [rows, width]: of `from` [.., width] the row of each one's token. tokens [rows].
void gather_expert_rows(int64_t rows, int64_t width, const int64_t* tokens, const float* from,
                        float* to);

// sums [tokens, width] = start + sum over a token's choices of score * its row, in the order of the
// choices. rows [tokens, chosen]: into values [.., width]. scores [tokens, chosen]; null: 1. start
// [tokens, width]; null: 0.
struct ExpertChoices {
  int64_t tokens, chosen;
  const int64_t* rows;
};
void combine_expert_rows(const ExpertChoices& choices, int64_t width, const float* values,
                         const float* scores, const float* start, float* sums);

}  // namespace fastllm::gpt
