// The table of the types of datasets. A new one is a file below types/, and its name here.
#include <algorithm>

#include "core/train/datasets/dataset_type.hpp"

namespace fastllm::train {

namespace types {
extern const DatasetType memmap, concatenated, slice, file, concatenated_memmap, random, sampled,
    blended, fim, legacy, test_slow;
}

const std::vector<const DatasetType*>& dataset_types() {
  static const std::vector<const DatasetType*> all = {&types::memmap,
                                                      &types::concatenated,
                                                      &types::slice,
                                                      &types::file,
                                                      &types::concatenated_memmap,
                                                      &types::random,
                                                      &types::sampled,
                                                      &types::blended,
                                                      &types::fim,
                                                      &types::legacy,
                                                      &types::test_slow};
  return all;
}

const DatasetType* find_dataset_type(std::string_view name) {
  const auto& all = dataset_types();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const DatasetType* t) { return t->name == name; });
  return found == all.end() ? nullptr : *found;
}

std::vector<std::string> dataset_type_names(bool of_documents) {
  std::vector<std::string> names;
  for (const DatasetType* type : dataset_types())
    if (of_documents ? type->open != nullptr : type->usable()) names.emplace_back(type->name);
  return names;
}

}  // namespace fastllm::train
