// What can be said of a definition of a dataset before any file is opened (docs/compatibility.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/config/node.hpp"
#include "core/train/datasets/sampling_choices.hpp"

namespace fastllm::train {

// What holds where a definition stands; `sampled` changes it for what is inside.
struct DatasetRules : SamplingChoices {
  std::string tokenizer_path;  // data.tokenizer.path; empty: none
  int64_t vocab_size = 0;      // the model's; 0: it does not say
  size_t split_part = 0;       // of the legacy definition: 0 training, 1 validation, 2 test
  bool inside_fim = false;
};

// value: what is wrong; path: its key.
using DatasetReport = std::function<void(const config::Node& value, const std::string& path,
                                         const std::string& sentence)>;

// One definition under examination.
struct DatasetCheck {
  const config::Node& definition;
  const DatasetRules& rules;  // where it stands
  DatasetRules& inside;       // of what is inside it; the same unless changed
  std::function<void(const std::string& key, const std::string& sentence)> add;
};

// A resolved definition and those inside it; path: its key.
void check_dataset(const config::Node& definition, const std::string& path,
                   const DatasetRules& rules, const DatasetReport& report);

// The same; all that is wrong in one Error(kInvalid), one a line. For the content of a `file`,
// which is known only when it is read.
void check_dataset(const config::Node& definition, const std::string& path,
                   const DatasetRules& rules);

// Of the three parts of a legacy split, that of data.datasets.NAME: Training and Test have their
// own, all others are for validation.
size_t split_part(const std::string& name);

}  // namespace fastllm::train
