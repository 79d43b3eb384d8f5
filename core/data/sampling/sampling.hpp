// Samples of a fixed length from a set of documents (docs/compatibility.md), in an order that is a
// pure function of the seed: nothing is stored, nothing can go stale.
//
// Documents are cut where samples end: sample i = tokens [i*S, i*S + S + P) of the endless stream of
// documents, where P tokens are predicted at each position (nearly always 1). Or documents stay
// whole (truncate_documents false): each sample holds as many as fit, in order, then padding.
#pragma once

#include <cstdint>
#include <memory>

#include "core/data/batch.hpp"
#include "core/data/indexed.hpp"
#include "core/data/sampling/document_order.hpp"

namespace fastllm::data {

struct SamplingOptions {
  int64_t num_samples = 0;
  int64_t sequence_length = 0;  // S, tokens
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kEpoch;
  int64_t predicted_tokens = 1;         // P; a sample has S + P tokens
  bool use_loss_masking_spans = false;  // samples carry those of their documents
  bool truncate_documents = true;
  // Tokens; 0: no limit. Longer documents are cut in chunks of that length, each a document of its
  // own for attention; or left out, when documents stay whole.
  int64_t maximum_document_length = 0;
  int64_t processes = 1;  // that sample on this computer, and share its memory
};

std::shared_ptr<const SampledDataset> make_sampled(IndexedPointer dataset,
                                                   const SamplingOptions& options);

}  // namespace fastllm::data
