// The types of datasets, for whoever asks which there are; their keys: dataset_fields.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fastllm::train {

struct DatasetType {
  std::string_view name;
  // It gives documents one by one, which is what `concatenated` and `slice` take. A `file` may.
  enum class Documents { kNo, kYes, kMaybe } documents;
};

// In the order of dataset_fields.cpp.
inline constexpr DatasetType kDatasetTypes[] = {
    {"memmap", DatasetType::Documents::kYes},
    {"concatenated", DatasetType::Documents::kYes},
    {"slice", DatasetType::Documents::kYes},
    {"file", DatasetType::Documents::kMaybe},
    {"concatenated_memmap", DatasetType::Documents::kYes},
    {"random", DatasetType::Documents::kNo},
    {"sampled", DatasetType::Documents::kNo},
    {"blended", DatasetType::Documents::kNo},
    {"fim", DatasetType::Documents::kNo},
    {"legacy", DatasetType::Documents::kNo},
};

// Those that give, or may give, documents one by one; or all.
inline std::vector<std::string> dataset_types(bool of_documents) {
  std::vector<std::string> names;
  for (const DatasetType& type : kDatasetTypes) {
    if (!of_documents || type.documents != DatasetType::Documents::kNo)
      names.emplace_back(type.name);
  }
  return names;
}

inline bool gives_documents(std::string_view name) {
  for (const DatasetType& type : kDatasetTypes)
    if (type.name == name) return type.documents == DatasetType::Documents::kYes;
  return false;
}

}  // namespace fastllm::train
