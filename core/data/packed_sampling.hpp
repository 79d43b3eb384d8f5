// Samples of whole documents (sampling.hpp). Internal to sampling: options are checked there.
#pragma once

#include <cstdint>
#include <memory>

#include "core/data/batch.hpp"
#include "core/data/indexed.hpp"
#include "core/data/sampling.hpp"

namespace fastllm::data {

// Documents longer than a sample, or than the maximum, are left out and told; none left:
// Error(kInvalid). Memory: a byte a sample.
std::shared_ptr<const SampledDataset> make_packed(IndexedPointer dataset,
                                                  const SamplingOptions& options);

// What both ways of sampling share.

// Tokens [offset, offset + count) of a document become [begin, begin + count) of the sample, spans
// with them when they are wanted.
void append_document(const IndexedDataset& dataset, bool spans, int64_t document, int64_t offset,
                     int64_t begin, int64_t count, Sample& sample);
void check_sample_index(const SampledDataset& dataset, int64_t index);

}  // namespace fastllm::data
