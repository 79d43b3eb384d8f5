// What tokenizers from a folder have in common: a name, a vocabulary, and the rules for special ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/data/tokenizers/tokenizer.hpp"
#include "core/data/tokenizers/tokenizer_folder.hpp"

namespace fastllm::data {

class PretrainedTokenizer : public Tokenizer {
 public:
  std::string name() const override { return name_; }
  int64_t vocabulary() const override { return vocabulary_; }
  int64_t begin_id() const override { return begin_; }
  int64_t end_id() const override { return end_; }
  std::optional<int64_t> pad_id() const override { return pad_; }

 protected:
  // Special ids of which the model file itself knows.
  struct OwnIds {
    std::optional<int64_t> begin, end, pad;
  };

  explicit PretrainedTokenizer(const TokenizerFolder& folder) : name_(folder.file.string()) {}

  // For the constructor of a tokenizer that can already look up tokens by their text. The ids are
  // those that the folder's other files name, else its own. Error(kInvalid) where neither knows the
  // token in front or behind, or the vocabulary lacks one that is named.
  void set_vocabulary(int64_t size, const TokenizerFolder& folder, const OwnIds& own = {});

  // Error(kInvalid) for an id outside the vocabulary.
  void check_ids(std::span<const int64_t> ids) const;

 private:
  std::string name_;
  int64_t vocabulary_ = 0, begin_ = 0, end_ = 0;
  std::optional<int64_t> pad_;
};

}  // namespace fastllm::data
