// What the configuration says of how a dataset is sampled.
#pragma once

#include <cstdint>
#include <string>

#include "core/train/datasets/make_dataset.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

// Of data.datasets.NAME. num_samples: in all; vocab_size: of the model, 0: it does not say.
SamplingSettings sampling_settings(const Settings& settings, const std::string& name,
                                   int64_t num_samples, int64_t vocab_size,
                                   int64_t predicted_tokens);

}  // namespace fastllm::train
