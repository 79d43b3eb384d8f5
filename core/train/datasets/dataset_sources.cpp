#include "core/train/datasets/dataset_sources.hpp"

#include <algorithm>

namespace fastllm::train {

DatasetSources::DatasetSources(int num_workers, OpenTokenizer open_tokenizer)
    : workers_(std::max(1, num_workers)), open_tokenizer_(std::move(open_tokenizer)) {}

DatasetSources::TokenizerPointer DatasetSources::tokenizer(const std::string& path,
                                                           std::vector<std::string> added_tokens) {
  auto& known = tokenizers_[{path, added_tokens}];
  TokenizerPointer tokenizer = known.lock();
  if (!tokenizer) {
    data::TokenizerOptions options;
    options.path = path;
    options.added_tokens = std::move(added_tokens);
    options.workers = workers_;
    known = tokenizer = open_tokenizer_(options);
  }
  return tokenizer;
}

}  // namespace fastllm::train
