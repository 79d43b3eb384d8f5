// Samples of uniformly random token ids, equal to the reference's (docs/compatibility.md): for
// tests and speed measurements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/data/batch.hpp"

namespace fastllm::data {

std::shared_ptr<const SampledDataset> make_random(std::string name, int64_t num_samples,
                                                  int64_t sequence_length, int64_t vocab_size,
                                                  uint64_t seed, int64_t predicted_tokens = 1);

}  // namespace fastllm::data
