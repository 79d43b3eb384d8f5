// The blocks that define a dataset, told apart by `type` (docs/compatibility.md).
#pragma once

#include <string>
#include <vector>

#include "core/config/schema.hpp"

namespace fastllm::train {

constexpr const char* kDatasetFamily = "dataset";

// With the keys of all types.
void add_dataset_family(config::Schema& schema);
// Holds that family alone: for definitions in files of their own.
const config::Schema& dataset_schema();

// A place for a dataset, or for several, inside another.
enum class Inside { kAny, kDocuments };
config::Nested one_dataset(const std::string& path, Inside inside, const std::string& help);
config::Nested several_datasets(const std::string& path, size_t minimum, Inside inside,
                                const std::string& help);

// Keys that stand in `data` as well: fill-in-the-middle's, and those of the legacy definition.
std::vector<config::Field> fim_fields(const std::string& prefix);
std::vector<config::Field> legacy_dataset_fields();

}  // namespace fastllm::train
