// Cross entropy of rows of logits, and the gradient of its sum in their place.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

constexpr int64_t kNoLabel = -100;  // a row without a label counts for nothing

// Returns the sum over rows with a label of -log softmax(logits)[label]. Labels are in [0,
// vocabulary) or kNoLabel. gradient [rows, vocabulary] = softmax - one-hot, zeros without a label;
// may be the memory of the logits; null: not wanted.
double cross_entropy(const float* logits, const int64_t* labels, int64_t rows, int64_t vocabulary,
                     float* gradient);

}  // namespace fastllm::gpt
