// What a type of dataset makes one with, beside its definition and the sampling settings.
#pragma once

#include <filesystem>
#include <string>

#include "core/config/node.hpp"
#include "core/train/datasets/dataset_sources.hpp"
#include "core/train/datasets/dataset_type.hpp"

namespace fastllm::train {

// Where a definition stands.
struct DatasetContext {
  std::string where;             // its key
  std::filesystem::path folder;  // what its paths are relative to; empty: the working directory
  DatasetSources& sources;
  int depth = 0;  // of definitions in definitions
  bool inside_fim = false;
  DatasetContext inside(const std::string& key) const {
    return {where + "." + key, folder, sources, depth + 1, inside_fim};
  }
};

// Of a definition inside another, whatever its type.
data::IndexedPointer open_documents(const config::Node& definition,
                                    const SamplingSettings& sampling,
                                    const DatasetContext& context);
SampledPointer make_samples(const config::Node& definition, const SamplingSettings& sampling,
                            const DatasetContext& context);

[[noreturn]] void refuse(const DatasetContext& context, const config::Node& definition,
                         const std::string& sentence);

// `path`, `dataset` (what: for the message when there is none) and `name` of a definition.
std::filesystem::path path_of(const config::Node& definition, const DatasetContext& context);
const config::Node& inner_dataset(const config::Node& definition, const DatasetContext& context,
                                  const char* what);
std::string name_of(const config::Node& definition, const char* fallback);

}  // namespace fastllm::train
