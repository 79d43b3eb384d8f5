// A SentencePiece model through its own library.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/data/tokenizers/tokenizer.hpp"
#include "core/data/tokenizers/tokenizer_folder.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace fastllm::data {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const TokenizerFolder& folder);
  ~SentencePieceTokenizer() override;

  std::string name() const override { return name_; }
  int64_t vocabulary() const override { return vocabulary_; }
  int64_t begin_id() const override { return begin_; }
  int64_t end_id() const override { return end_; }
  std::optional<int64_t> pad_id() const override { return pad_; }
  std::optional<int64_t> token_id(std::string_view token) const override;
  void encode_batch(std::span<const std::string_view> texts, TokenBatch& batch) const override;
  std::string decode(std::span<const int64_t> ids) const override;

 private:
  std::string name_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;  // const calls: any thread
  int64_t vocabulary_ = 0, begin_ = 0, end_ = 0;
  std::optional<int64_t> pad_;
};

}  // namespace fastllm::data
