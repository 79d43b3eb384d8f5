// Samples of whole documents (sampling.hpp). Internal to sampling: options are checked there.
#pragma once

#include <memory>

#include "core/data/indexed.hpp"
#include "core/data/sampling/sampling.hpp"

namespace fastllm::data {

// Documents longer than a sample, or than the maximum, are left out and told; none left:
// Error(kInvalid). Memory: a byte a sample.
std::shared_ptr<const SampledDataset> make_packed(IndexedPointer dataset,
                                                  const SamplingOptions& options);

}  // namespace fastllm::data
