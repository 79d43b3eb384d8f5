// Losses of rows of logits, and the gradient of their sums in the logits' place.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

constexpr int64_t kNoLabel = -100;  // a row without a label counts for nothing

// By row with a label: cross entropy is z - logits[label], z loss is z^2, z = log sum exp(logits).
struct LossSums {
  double cross_entropy = 0, z = 0;
};
// Weights of the two in what the gradient is of.
struct LossFactors {
  double cross_entropy = 1, z = 0;
};

// Labels are in [0, vocabulary) or kNoLabel. gradient [rows, vocabulary], of
//   factors.cross_entropy * sum of cross entropy + factors.z * sum of z loss,
// may be the memory of the logits; null: not wanted. The sums have the same bits either way.
LossSums cross_entropy(const float* logits, const int64_t* labels, int64_t rows, int64_t vocabulary,
                       const LossFactors& factors, float* gradient);

// The same of logits whose columns are divided over ranks: this one has those from `first` on. Sums
// over ranks are the caller's, between the three: the largest of `maximum` [rows], then the sum of
// `sums` [rows, 2]. The gradient is of this rank's columns.
struct OwnColumns {
  int64_t rows, columns, first;
};
void row_maxima(const float* logits, const OwnColumns& own, float* maximum);
// By row: sum of exp(logit - maximum), and the label's logit where it is here. exponentials, if not
// null, may be the memory of the logits.
void row_sums(const float* logits, const int64_t* labels, const OwnColumns& own,
              const float* maximum, float* exponentials, float* sums);
// gradient holds the exponentials; null: not wanted.
LossSums cross_entropy_of_sums(const int64_t* labels, const OwnColumns& own, const float* maximum,
                               const float* sums, const LossFactors& factors, float* gradient);

}  // namespace fastllm::gpt
