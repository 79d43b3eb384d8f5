// What fill-in-the-middle needs, wherever it stands.
#pragma once

#include <string>

#include "core/train/datasets/dataset_checks.hpp"

namespace fastllm::train::types {

// key: what is blamed.
void check_fim(const std::string& key, const DatasetCheck& check);

}  // namespace fastllm::train::types
