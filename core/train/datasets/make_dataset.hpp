// From a definition in the configuration (data.datasets.*, docs/compatibility.md) to a dataset that
// can be sampled. Paths in a `file` dataset's YAML are relative to that YAML.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "core/config/node.hpp"
#include "core/data/batch.hpp"
#include "core/data/sampling/sampling.hpp"
#include "core/train/datasets/dataset_sources.hpp"
#include "core/train/datasets/sampling_choices.hpp"

namespace fastllm::train {

// What a definition is made with.
struct SamplingSettings : SamplingChoices {
  int64_t num_samples = 0;
  int64_t processes = 1;         // of this run on this computer
  int64_t sequence_length = 0;   // tokens
  int64_t predicted_tokens = 1;  // labels a position has; a sample has as many tokens more
  int64_t vocab_size = 0;        // the model's; for type random
  std::string tokenizer_path;    // for type fim; empty: none
  // For type legacy: the seed of its order, and its part of the split (0 training, 1 validation,
  // 2 test).
  int64_t legacy_seed = 1234;
  size_t split_part = 0;
};

// folder: what relative paths are relative to; empty: the working directory.
// sources: one for all definitions of a run.
// where: the definition's key, for messages ("data.datasets.Training").
std::shared_ptr<const data::SampledDataset> make_dataset(const config::Node& definition,
                                                         const SamplingSettings& sampling,
                                                         const std::string& where,
                                                         DatasetSources& sources,
                                                         const std::filesystem::path& folder = {});

}  // namespace fastllm::train
