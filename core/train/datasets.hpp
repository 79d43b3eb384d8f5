// From a definition in the configuration (data.datasets.*, docs/compatibility.md) to a dataset that can be sampled.
// Paths in a `file` dataset's YAML are relative to that YAML.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "core/config/node.hpp"
#include "core/data/batch.hpp"
#include "core/data/sampling.hpp"

namespace fastllm::train {

struct SamplingSettings {
  int64_t num_samples = 0;
  int64_t sequence_length = 0;   // tokens
  int64_t predicted_tokens = 1;  // labels a position has; a sample has as many tokens more
  uint64_t seed = 0;
  data::Shuffle shuffle = data::Shuffle::kEpoch;
  bool use_loss_masking_spans = false;
  int64_t vocab_size = 0;  // for type random
};

// folder: what relative paths are relative to; empty: the working directory.
// where: the definition's key, for messages ("data.datasets.Training").
std::shared_ptr<const data::SampledDataset> make_dataset(const config::Node& definition,
                                                         const SamplingSettings& sampling,
                                                         const std::string& where,
                                                         const std::filesystem::path& folder = {});

}  // namespace fastllm::train
