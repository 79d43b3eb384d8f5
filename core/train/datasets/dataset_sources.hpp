// What the dataset definitions of a run share: open files, and tokenizers with their processes.
// Outlives no dataset's making; what is made keeps what it needs. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/data/formats/open_files.hpp"
#include "core/data/tokenizers/tokenizer.hpp"

namespace fastllm::train {

class DatasetSources {
 public:
  using TokenizerPointer = std::shared_ptr<const data::Tokenizer>;
  using OpenTokenizer = std::function<TokenizerPointer(const data::TokenizerOptions&)>;

  // num_workers: threads that read samples (training.num_workers): as many may tokenize at once.
  explicit DatasetSources(int num_workers, OpenTokenizer open_tokenizer = data::open_tokenizer);

  // added_tokens: as TokenizerOptions has them.
  TokenizerPointer tokenizer(const std::string& path, std::vector<std::string> added_tokens);
  data::OpenFiles& files() { return files_; }

 private:
  const int workers_;
  const OpenTokenizer open_tokenizer_;
  std::map<std::pair<std::string, std::vector<std::string>>, std::weak_ptr<const data::Tokenizer>>
      tokenizers_;  // by path and added tokens
  data::OpenFiles files_;
};

}  // namespace fastllm::train
