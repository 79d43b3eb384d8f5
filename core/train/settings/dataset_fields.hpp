// The blocks that define a dataset, told apart by `type` (docs/compatibility.md).
#pragma once

#include <string>
#include <vector>

#include "core/config/schema.hpp"

namespace fastllm::train {

constexpr const char* kDatasetFamily = "dataset";

void add_dataset_family(config::Schema& schema);
// Fill-in-the-middle keys, and those of the legacy definition, which stand in several blocks.
std::vector<config::Field> fim_fields(const std::string& prefix);
std::vector<config::Field> legacy_dataset_fields();

}  // namespace fastllm::train
