// What a type of dataset is to the rest: keys, checks, and how one is made. Each has a file of its
// own below types/; the table of all is in dataset_types.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/node.hpp"
#include "core/config/schema.hpp"
#include "core/data/batch.hpp"
#include "core/data/indexed.hpp"
#include "core/train/datasets/dataset_checks.hpp"
#include "core/train/datasets/make_dataset.hpp"

namespace fastllm::train {

struct DatasetContext;

using SampledPointer = std::shared_ptr<const data::SampledDataset>;

struct DatasetType {
  std::string_view name;
  const char* help;
  // Adds its keys to `block`, which is the type's own.
  void (*declare)(config::Schema& schema, const std::string& block);
  bool type_last = false;  // dumps have its key `type` behind the others
  // What can be said before a file is opened. Null: nothing.
  void (*check)(const DatasetCheck& check) = nullptr;
  // Its documents one by one, which is what `concatenated` and `slice` take. Null: it gives none.
  data::IndexedPointer (*open)(const config::Node& definition, const SamplingSettings& sampling,
                               const DatasetContext& context) = nullptr;
  // Its samples. Null: they are drawn from its documents.
  SampledPointer (*sample)(const config::Node& definition, const SamplingSettings& sampling,
                           const DatasetContext& context) = nullptr;

  bool usable() const { return open || sample; }  // else it is declared to be refused
};

// All, in the order of messages and of the reference page.
const std::vector<const DatasetType*>& dataset_types();
const DatasetType* find_dataset_type(std::string_view name);  // null: there is none
// Of the usable ones: those that give, or may give, documents one by one; or all.
std::vector<std::string> dataset_type_names(bool of_documents);

}  // namespace fastllm::train
