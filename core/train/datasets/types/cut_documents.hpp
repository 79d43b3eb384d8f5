// A rule of the types that read documents from files.
#pragma once

#include "core/train/datasets/dataset_checks.hpp"

namespace fastllm::train::types {

inline void check_cut_documents(const DatasetCheck& check) {
  if (check.rules.shuffle == "legacy" && !check.rules.truncate_documents)
    check.add("type",
              "expected truncate_documents: true with shuffle: legacy, which cuts documents, found "
              "false; write shuffle: epoch, or truncate_documents: true");
}

}  // namespace fastllm::train::types
