// Samples of a fixed length from a set of documents (docs/compatibility.md).
// Sample i = tokens [i*S, i*S + S + P) of an endless stream of documents, where P tokens are
// predicted at each position (nearly always 1), in an order that is a pure function of the seed: nothing is stored, nothing can go stale. Orders are built when first
// needed, one epoch at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/data/batch.hpp"
#include "core/data/indexed.hpp"

namespace fastllm::data {

enum class Shuffle { kDisabled, kEpoch, kSkipFirstEpoch, kFull, kLegacy };

// "disabled", "epoch", "skip_first_epoch", "full", "legacy"; others: Error(kInvalid) that lists
// them.
Shuffle parse_shuffle(std::string_view name);

std::shared_ptr<const SampledDataset> make_sampled(IndexedPointer dataset, int64_t num_samples,
                                                   int64_t sequence_length, uint64_t seed,
                                                   Shuffle shuffle, int64_t predicted_tokens = 1);

}  // namespace fastllm::data
